"""WebHDFS answers as bytes: what a stock Hadoop client accepts, whatever happened.

Two rules hold for every answer of either side. First, JSON carries no Content-Type for Hadoop's own client: the
one that Spark bundles lacks a class that it needs to look at that header, and fails on any value. Everybody
else is told `application/json`. Second, every error is a RemoteException: JSON without one and without
Content-Type counts as success there, whatever its status.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass

import msgspec

from peacefs.protocol.asgi import Receive, Scope, Send, client_watch, header
from peacefs.protocol.errors import PeacefsError, remote_exception
from peacefs.protocol.trace_context import current_id

log = logging.getLogger("peacefs.webhdfs")

_JSON = b"application/json"
_UNAUTHORIZED = 401
_OCTETS = b"application/octet-stream"
_encode_json = msgspec.json.Encoder().encode

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer: its head always says how long the body is."""

    status: int
    body: bytes = b""
    extra: tuple[tuple[bytes, bytes], ...] = ()
    content_type: bytes = _JSON

    def headers(self, *, with_type: bool) -> Headers:
        headers = [(b"content-length", b"%d" % len(self.body)), *self.extra]
        if self.body and (with_type or self.content_type != _JSON):
            headers.append((b"content-type", self.content_type))
        return headers


@dataclass(frozen=True, slots=True)
class JsonStream:
    """A JSON answer too long to be held: its pieces are made while earlier ones are on their way."""

    pieces: AsyncIterator[bytes]


def json_answer(value: object, status: int = 200, **extra: str) -> Answer:
    """`extra` are further headers, as of `empty_answer`."""
    return Answer(status, _encode_json(value), _headers_of(extra))


def boolean_answer(value: bool) -> Answer:
    return json_answer({"boolean": value})


def empty_answer(status: int = 200, **extra: str) -> Answer:
    """An answer without a body; `extra` are further headers, underscores standing for hyphens."""
    return Answer(status, extra=_headers_of(extra))


def _headers_of(extra: dict[str, str]) -> tuple[tuple[bytes, bytes], ...]:
    return tuple((name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in extra.items())


def error_answer(error: PeacefsError, status: int | None = None) -> Answer:
    """The RemoteException for an error, with the error's own status unless HTTP has a better one."""
    status = status or error.http_status
    extra = ((b"www-authenticate", b"Bearer"),) if status == _UNAUTHORIZED else ()
    return Answer(status, _encode_json(remote_exception(error, current_id())), extra)


def fault_answer(fault: Exception, scope: Scope) -> Answer:
    """The answer to a request that failed: an error of our tree as it is, a bug only in the log."""
    if isinstance(fault, PeacefsError):
        return error_answer(fault)
    log.error("%s %r failed", scope["method"], scope["path"], exc_info=fault)
    return error_answer(PeacefsError("an internal fault; the log of the service that answered tells more"))


def wants_content_type(scope: Scope) -> bool:
    """False for Hadoop's own client."""
    if header(scope, b"x-hadoop-accept-ez") is not None:
        return False
    return not (header(scope, b"user-agent") or "").startswith("Java/")


def octet_headers(length: int) -> Headers:
    """The head of file data."""
    return [(b"content-length", b"%d" % length), (b"content-type", _OCTETS)]


async def send_answer(scope: Scope, send: Send, answer: Answer) -> None:
    """Sends head and body without a pause between them, so that they share a segment."""
    headers = answer.headers(with_type=wants_content_type(scope))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


async def send_stream(scope: Scope, receive: Receive, send: Send, stream: JsonStream) -> None:
    """Sends the pieces as parts of one answer, as long as somebody reads them.

    After a fault among them the answer stays without its end, upon which the server hangs up.
    """
    headers = [(b"content-type", _JSON)] if wants_content_type(scope) else []
    async with client_watch(receive) as hung_up:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            async for piece in stream.pieces:
                if hung_up.done():
                    return
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        except PeacefsError as fault:
            log.warning("%r broke off: %s", scope["path"], fault)
            return
        await send({"type": "http.response.body", "body": b""})
