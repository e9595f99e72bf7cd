"""WebHDFS answers as bytes, in a form that stock Hadoop clients accept.

Two rules apply to every answer. First, JSON for Hadoop's own client has no Content-Type: the client that Spark
bundles lacks a class for reading that header, and fails on any value. Other clients get `application/json`.
Second, every error is a RemoteException: Hadoop's client takes JSON without one and without Content-Type for
success, regardless of the status.
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
    """A complete answer, with a Content-Length."""

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
    """A long JSON answer, whose pieces are made while it is being sent."""

    pieces: AsyncIterator[bytes]


def json_answer(value: object, status: int = 200, **extra: str) -> Answer:
    """Return a JSON answer; `extra` are further headers, as in `empty_answer`."""
    return Answer(status, _encode_json(value), _headers_of(extra))


def boolean_answer(value: bool) -> Answer:
    return json_answer({"boolean": value})


def empty_answer(status: int = 200, **extra: str) -> Answer:
    """Return an answer without a body; `extra` are further headers, with underscores instead of hyphens."""
    return Answer(status, extra=_headers_of(extra))


def _headers_of(extra: dict[str, str]) -> tuple[tuple[bytes, bytes], ...]:
    return tuple((name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in extra.items())


def error_answer(error: PeacefsError, status: int | None = None) -> Answer:
    """Return the RemoteException for an error; `status` replaces the error's own HTTP status."""
    status = status or error.http_status
    extra = ((b"www-authenticate", b"Bearer"),) if status == _UNAUTHORIZED else ()
    return Answer(status, _encode_json(remote_exception(error, current_id())), extra)


def fault_answer(fault: Exception, scope: Scope) -> Answer:
    """Return the answer to a failed request. Details of errors that are not a PeacefsError go only to the log."""
    if isinstance(fault, PeacefsError):
        return error_answer(fault)
    log.error("%s %r failed", scope["method"], scope["path"], exc_info=fault)
    return error_answer(PeacefsError("an internal fault; the log of the service that answered tells more"))


def wants_content_type(scope: Scope) -> bool:
    """Return False for Hadoop's own client."""
    if header(scope, b"x-hadoop-accept-ez") is not None:
        return False
    return not (header(scope, b"user-agent") or "").startswith("Java/")


def octet_headers(length: int) -> Headers:
    return [(b"content-length", b"%d" % length), (b"content-type", _OCTETS)]


async def send_answer(scope: Scope, send: Send, answer: Answer) -> None:
    """Send head and body without a pause, so that they share a TCP segment."""
    headers = answer.headers(with_type=wants_content_type(scope))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


async def send_stream(scope: Scope, receive: Receive, send: Send, stream: JsonStream) -> None:
    """Send the pieces as one answer, until the client disconnects.

    If making a piece fails, the answer stays incomplete and the server closes the connection.
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
            log.warning("the answer to %r ended in the middle: %s", scope["path"], fault)
            return
        await send({"type": "http.response.body", "body": b""})
