"""Files that browsers upload: the coordinator passes their bodies on to a datanode.

A page may send requests only to its own origin (decision 32), so a page of the coordinator cannot follow CREATE's
redirect to a datanode. With `data=true`, Hadoop HttpFS's parameter, the coordinator follows it for the page. Other
clients should not use this, because their data would pass through the coordinator. Size and number are limited.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlsplit

from peacefs.protocol.asgi import Receive, Scope, client_host, header
from peacefs.protocol.errors import BadRequest, Overloaded, PeacefsError, PeerUnreachable
from peacefs.protocol.limits import KIB, MIB
from peacefs.protocol.webhdfs.answers import Answer, error_answer
from peacefs.protocol.webhdfs.query import RequestQuery, is_webhdfs
from peacefs.runtime.tls import TlsIdentity
from peacefs.service.client_shares import Shares, client_of

upload_bytes_max: Final = 4096 * MIB
uploads_max: Final = 4
uploads_per_client_max: Final = 2
# How long an upload waits for the next bytes of the browser, and for the datanode.
upload_idle_timeout_s: Final = 60.0
# Minimum average rate. A slower upload is given up, because it would occupy one of the few places.
upload_bytes_per_s_min: Final = 16 * KIB
_ANSWER_BYTES_MAX: Final = 64 * KIB

#: Answers the request as if it had no body: with a redirect, or a refusal.
Redirecting = Callable[[Scope], Awaitable[Answer]]


def has_data(scope: Scope) -> bool:
    """Return whether the request is a CREATE that has the file's content."""
    if scope["method"] != "PUT" or b"data=true" not in scope["query_string"] or not is_webhdfs(scope):
        return False
    try:
        query = RequestQuery(scope["query_string"])
    except PeacefsError:
        return False
    return (query.text("op") or "").upper() == "CREATE" and query.text("data") == "true"


class Uploads:
    """Streams uploads to datanodes. Limits their number and length. Used from one event loop only."""

    def __init__(self, tls: TlsIdentity | None, bytes_max: int = upload_bytes_max) -> None:
        self._tls = tls
        self._bytes_max = bytes_max
        self._places = Shares(uploads_max, uploads_per_client_max)

    async def answer(self, scope: Scope, receive: Receive, redirecting: Redirecting) -> Answer:
        """Create the file, send its content to the datanode of the redirect, and return the datanode's answer."""
        client = client_of(client_host(scope))
        try:
            length = self._length(scope)
            if not self._places.take(client):
                raise Overloaded(f"{self._places.total} files are being uploaded already; try again")
        except PeacefsError as refusal:
            return error_answer(refusal)
        try:
            redirect = await redirecting(scope)
            location = dict(redirect.extra).get(b"location")
            if location is None:
                return redirect
            return await self._passed_on(scope, receive, location.decode("latin-1"), length)
        except PeacefsError as fault:
            return error_answer(fault)
        finally:
            self._places.give_back(client)

    def _length(self, scope: Scope) -> int:
        """Return the length of the body. Raises BadRequest if it is unknown or over the limit."""
        told = header(scope, b"content-length")
        if told is None:
            raise BadRequest("the length of the upload is unknown: send a Content-Length")
        if int(told) > self._bytes_max:
            raise BadRequest(
                f"an upload of {told} bytes is over the limit of {self._bytes_max}: use peacefs put, or a mount"
            )
        return int(told)

    async def _passed_on(self, scope: Scope, receive: Receive, location: str, length: int) -> Answer:
        url = urlsplit(location)
        tls = None if self._tls is None else self._tls.connector_context()
        try:
            async with asyncio.timeout(upload_idle_timeout_s):
                answers, body = await asyncio.open_connection(url.hostname, url.port, ssl=tls)
        except (OSError, TimeoutError) as error:
            raise PeerUnreachable(f"datanode {url.netloc} does not answer: {error or 'it is silent'}") from None
        reading = asyncio.ensure_future(_read_answer(answers))
        try:
            body.write(_head(scope, url.netloc, f"{url.path}?{url.query}", length))
            # A datanode that refuses may close the connection before it has read the body. Its answer says why.
            with contextlib.suppress(ConnectionError):
                await _send(receive, body, reading)
            async with asyncio.timeout(upload_idle_timeout_s):
                return _parsed(await reading, url.netloc)
        except TimeoutError:
            raise PeerUnreachable(
                f"datanode {url.netloc} was silent for {upload_idle_timeout_s:g} s: the upload is given up"
            ) from None
        except OSError as error:
            raise PeerUnreachable(f"the upload to datanode {url.netloc} broke off: {error}") from None
        finally:
            reading.cancel()
            # Without the rest of the body, the datanode drops the file.
            body.transport.abort()


async def _send(receive: Receive, body: asyncio.StreamWriter, reading: asyncio.Future[bytes]) -> None:
    """Send the request's body, until the datanode answers.

    Raises BadRequest if the client disconnects or is too slow, TimeoutError if the datanode is too slow, and
    ConnectionError.
    """
    loop = asyncio.get_running_loop()
    began_s, sent, is_more = loop.time(), 0, True
    while is_more and not reading.done():
        slowest_s = began_s + sent / upload_bytes_per_s_min
        try:
            async with asyncio.timeout_at(min(loop.time(), slowest_s) + upload_idle_timeout_s):
                message = await receive()
        except TimeoutError:
            raise BadRequest(
                f"{sent} bytes came in {loop.time() - began_s:.0f} s: the upload is given up"
            ) from None
        if message["type"] == "http.disconnect":
            raise BadRequest("the body has no end")
        piece = message.get("body", b"")
        body.write(piece)
        async with asyncio.timeout(upload_idle_timeout_s):
            await body.drain()
        sent, is_more = sent + len(piece), message.get("more_body", False)


async def _read_answer(answers: asyncio.StreamReader) -> bytes:
    """Return everything that the datanode sends until it closes the connection, up to a limit."""
    answer = b""
    with contextlib.suppress(OSError):
        while piece := await answers.read(_ANSWER_BYTES_MAX - len(answer)):
            answer += piece
    return answer


def _head(scope: Scope, netloc: str, target: str, length: int) -> bytes:
    lines = [f"PUT {target} HTTP/1.1", f"host: {netloc}", f"content-length: {length}", "connection: close"]
    # The datanode checks the caller itself.
    bearer = header(scope, b"authorization")
    if bearer is not None:
        lines.append(f"authorization: {bearer}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _parsed(answer: bytes, netloc: str) -> Answer:
    """Return a datanode's answer without its headers. Raises PeerUnreachable if there is none."""
    head, _, content = answer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    if not status or not status[0].isdigit():
        raise PeerUnreachable(f"datanode {netloc} closed the connection without an answer")
    return Answer(int(status[0]), content)
