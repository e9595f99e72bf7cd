"""The HTTP server of coordinator and datanodes: uvicorn with additional limits.

uvicorn waits forever for a first byte, for the rest of a head, and for a client that does not read. It does not
limit URLs and heads, and it answers malformed requests in plain text. This server adds deadlines and size limits,
and every refusal is a RemoteException, the only error that Hadoop's client understands.

The head is sent together with the first piece of the body, in one system call and one segment. uvicorn sends them
separately, which can cost 40 ms per request because of Nagle's algorithm and delayed ACKs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
from collections.abc import Callable, Iterator
from typing import Any, Final, Self

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from peacefs.protocol.asgi import App
from peacefs.protocol.errors import BadRequest, StartupError
from peacefs.protocol.frames import FIRST_BYTE
from peacefs.protocol.limits import KIB, http_url_bytes_max, tcp_keepalive_idle_s
from peacefs.protocol.trace_context import TRACE_HEADER, TraceContext, continued, serving
from peacefs.protocol.webhdfs.answers import error_answer
from peacefs.runtime.tls import TlsIdentity
from peacefs.runtime.tls_faults import TLS_FIRST_BYTE
from peacefs.service.limits import http_connections_max, http_linger_s

from .body_socket import offer_socket
from .client_shares import client_of
from .http_crowd import HttpCrowd
from .metrics import http_requests
from .tls_listener import TlsListener

# Longer than clients keep idle connections (the JDK: 5 s): a request fails if the server closes first.
http_keep_alive_s: Final = 75
http_first_byte_timeout_s: Final = 60.0
tcp_keepalive_interval_s: Final = 10
tcp_keepalive_probes_max: Final = 6
# A client that reads nothing of its answer for this long is disconnected. A Spark task may process a row group for
# minutes before it reads on; HDFS's datanodes wait for as long.
http_write_stall_timeout_s: Final = 480.0
http_shutdown_grace_s: Final = 3
http_head_bytes_max: Final = 128 * KIB
# Even a short header costs a hundred bytes of memory. Hadoop's client sends six.
http_headers_max: Final = 100
# Pipelined requests: those that wait behind another request of the same connection.
http_pipelined_max: Final = 16


log = logging.getLogger("peacefs.http")

#: A redirect's URL also carries the request id, because clients do not repeat the header.
_TRACE_IN_URL = re.compile(rb"[?&]%b=([^&]*)(?:&x-request-span=([0-9a-f]{16})(?:&|$))?" % TRACE_HEADER)
_BEYOND_ASCII = re.compile(rb"[\x80-\xff]")
#: Key of the trace context in a request's scope.
_TRACE = "peacefs.trace"
_REASONS = {400: b"Bad Request", 414: b"URI Too Long", 431: b"Request Header Fields Too Large"}


class HeadWithBody:
    """A transport for one answer that holds the head back until the body's first piece."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head: bytes | None = None
        self._begun = False
        self.close = transport.close
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        if self._head is not None:
            self._transport.writelines((self._head, data) if data else (self._head,))
            self._head = None
        elif self._begun or data.startswith(b"HTTP/1.1 100 "):
            self._transport.write(data)
        else:
            self._begun, self._head = True, data


class BodyPieces:
    """Received pieces of a body that the application has not read. uvicorn's bytearray would copy them twice."""

    __slots__ = ("_length", "_pieces")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._length = 0

    def __iadd__(self, piece: bytes) -> Self:
        self._pieces.append(piece)
        self._length += len(piece)
        return self

    def __len__(self) -> int:
        return self._length

    def __bytes__(self) -> bytes:
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)


class BoundedConfig(uvicorn.Config):
    """The configuration shared by all connections of one server.

    `framed`, if given, makes the protocol for connections that carry frames instead of HTTP. `admits`, if given,
    decides whether a new connection is accepted.
    """

    def __init__(
        self,
        *arguments: Any,
        framed: Callable[[], asyncio.Protocol] | None = None,
        admits: Callable[[asyncio.BaseTransport], bool] | None = None,
        **named: Any,
    ) -> None:
        super().__init__(*arguments, **named)
        self.crowd = HttpCrowd()
        self.framed = framed
        self.admits = admits


class BoundedProtocol(HttpToolsProtocol):
    """One HTTP connection. uvicorn makes one for each accepted socket.

    A request's head must arrive before a deadline and within size limits. While the application answers, only a
    client that does not read is disconnected. If there are too many connections, HttpCrowd closes the one that has
    been without a complete request for longest; a new one is refused only if all others are being answered.
    """

    config: BoundedConfig

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._deadline: asyncio.TimerHandle | None = None
        self._write_deadline: asyncio.TimerHandle | None = None
        self._is_new = True
        self._at_request_line = True
        self._in_head = False
        self._head_bytes = 0
        self._refused = False

    # -- the connection's life -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.config.admits is not None and not self.config.admits(transport):
            transport.abort()
            return
        self.client_address = client_of(self.client[0] if self.client else None)
        if not self.config.crowd.join(self, self.loop.time()):
            transport.abort()
            return
        self._set_deadline()

    def abort(self) -> None:
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._clear_deadline()
        self.config.crowd.leave(self)
        self._clear_write_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        is_new, self._is_new = self._is_new, False
        if is_new and self.config.framed is not None and data.startswith(FIRST_BYTE):
            self._hand_over(self.config.framed(), data)
            return
        if is_new and data.startswith(TLS_FIRST_BYTE):
            self._refuse(400, "this port speaks no TLS: use http:// (for Spark webhdfs://)")
            return
        if self._at_request_line:
            end = data.find(b"\n")
            self._at_request_line = end < 0
            data = _with_ascii_line(data, len(data) if end < 0 else end)
        super().data_received(data)
        if self._in_head and not self._refused:
            self._head_bytes += len(data)
            if self._head_bytes > http_head_bytes_max:
                self._refuse(431, f"the head of the request is over {http_head_bytes_max} bytes")
        if self._answering():
            self._clear_deadline()
        else:
            self._set_deadline()

    def _hand_over(self, framed: asyncio.Protocol, data: bytes) -> None:
        """Give the connection to a protocol for frames."""
        self._clear_deadline()
        self.config.crowd.leave(self)
        self.connections.discard(self)
        self.transport.set_protocol(framed)
        framed.connection_made(self.transport)
        framed.data_received(data)

    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    # -- the parser's calls --------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._in_head = True
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > http_url_bytes_max:
            self._refuse(414, f"the URL is over {http_url_bytes_max} bytes")
            raise ValueError("the parser need not go on")

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        if len(self.headers) > http_headers_max:
            self._refuse(431, f"the request has more than {http_headers_max} headers")
            raise ValueError("the parser need not go on")

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= http_pipelined_max:
            self.transport.abort()
            raise ValueError("the parser need not go on")
        http_requests.inc()
        self._in_head = False
        self._head_bytes = 0
        trace = _trace_of(self.headers, self.url)
        self.scope[_TRACE] = trace  # type: ignore[literal-required]
        # uvicorn creates the task that answers here; the task inherits the current context.
        with serving(trace):
            super().on_headers_complete()
        self.cycle.default_headers = [*self.cycle.default_headers, (TRACE_HEADER, trace.id.encode())]
        if self.scope["method"] != "HEAD":
            offer_socket(self.scope, self.transport, self.cycle)  # type: ignore[arg-type]
            self.cycle.transport = HeadWithBody(self.transport)  # type: ignore[assignment]

    def on_body(self, body: bytes) -> None:
        if not self.cycle.body:
            self.cycle.body = BodyPieces()  # type: ignore[assignment]
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._at_request_line = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        # uvicorn starts the next pipelined request here.
        following = self.pipeline[-1][0].scope[_TRACE] if self.pipeline else None  # type: ignore[literal-required]
        with serving(following):
            super().on_response_complete()
        if not self.transport.is_closing() and not self._answering():
            self.config.crowd.waiting(self)

    def send_400_response(self, msg: str) -> None:
        if not self._refused:
            self._refuse(400, "the request is malformed: it is not HTTP/1.1")

    # -- deadlines -----------------------------------------------------------------------------------

    def _set_deadline(self) -> None:
        """Start the deadline for the next complete request, if it is not running; more bytes do not extend it."""
        if self._deadline is None:
            self._deadline = self.loop.call_later(http_first_byte_timeout_s, self.transport.abort)
        self.config.crowd.waiting(self, self._head_bytes)

    def _clear_deadline(self) -> None:
        self.config.crowd.answering(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._clear_write_deadline()
        self._write_deadline = self.loop.call_later(http_write_stall_timeout_s, self.transport.abort)
        self.config.crowd.not_taking(self, self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._clear_write_deadline()
        self.config.crowd.taken(self)
        super().resume_writing()

    def _clear_write_deadline(self) -> None:
        if self._write_deadline is not None:
            self._write_deadline.cancel()
            self._write_deadline = None

    # -- refusals ------------------------------------------------------------------------------------

    def _refuse(self, status: int, message: str) -> None:
        """Refuse the request; close the connection a little later, so a client that still sends can read why."""
        self._refused = True
        if self._answering():
            self.transport.abort()  # the refusal would be inserted into another answer
            return
        # No Content-Type: this may be Hadoop's client, whose headers are not known yet.
        with serving(continued("")) as trace:
            answer = error_answer(BadRequest(message), status)
        head = [b"HTTP/1.1 %d %s" % (status, _REASONS[status]), b"connection: close"]
        head += [b"%s: %s" % pair for pair in answer.headers(with_type=False)]
        head.append(b"%s: %s" % (TRACE_HEADER, trace.id.encode()))
        self.transport.write(b"\r\n".join((*head, b"", answer.body)))
        self._clear_deadline()
        self._deadline = self.loop.call_later(http_linger_s, self.transport.abort)


def _trace_of(headers: list[tuple[bytes, bytes]], url: bytes) -> TraceContext:
    given = next((value for name, value in headers if name == TRACE_HEADER), None)
    found = _TRACE_IN_URL.search(url)
    if found is not None and given in (None, found[1]):
        return continued(found[1].decode("latin-1"), (found[2] or b"").decode())
    return continued((given or b"").decode("latin-1"))


def _with_ascii_line(data: bytes, line_bytes: int) -> bytes:
    """Percent-encode non-ASCII bytes of a request line. Hadoop's client sends raw UTF-8; the parser rejects it."""
    line = data[:line_bytes]
    if line.isascii():
        return data
    return _BEYOND_ASCII.sub(lambda byte: b"%%%02X" % byte[0][0], line) + data[line_bytes:]


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket for `HttpServer.serve(sockets=[...])`; port 0 picks a free one. Raises
    StartupError.
    """
    try:
        family, _kind, _protocol, _name, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.create_server(address[:2], family=family, backlog=http_connections_max)
    except OSError as error:
        raise StartupError(f"cannot listen on {host} port {port}: {error.strerror or error}") from None
    # Accepted connections inherit these options.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, tcp_keepalive_idle_s)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, tcp_keepalive_interval_s)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, tcp_keepalive_probes_max)
    return listener


class HttpServer(uvicorn.Server):
    """A uvicorn server that leaves signals to its service. The service sets `should_exit` to stop it."""

    def __init__(self, config: BoundedConfig, tls: TlsIdentity | None) -> None:
        self._is_to_exit = False
        #: The event loop, while `main_loop` is running.
        self._waiting: asyncio.AbstractEventLoop | None = None
        self._told = asyncio.Event()
        super().__init__(config)
        self._tls = tls

    @property
    def should_exit(self) -> bool:
        return self._is_to_exit

    @should_exit.setter
    def should_exit(self, is_to_exit: bool) -> None:
        """Stop the server. Callable from any thread."""
        self._is_to_exit = is_to_exit
        if is_to_exit and self._waiting is not None:
            self._waiting.call_soon_threadsafe(self._told.set)

    async def main_loop(self) -> None:
        """Wait for `should_exit`. uvicorn polls ten times a second to update a Date header, which we do not
        send.
        """
        self._waiting = asyncio.get_running_loop()
        try:
            if not await self.on_tick(0):
                await self._told.wait()
        finally:
            self._waiting = None

    async def cut_off(self, serving: asyncio.Task[None], within_s: float) -> None:
        """Cancel all requests, abort connections that remain after `within_s`, and wait for `serving` to end."""
        for task in list(self.server_state.tasks):
            task.cancel()
        await asyncio.wait({serving}, timeout=within_s)
        for connection in list(self.server_state.connections):
            if isinstance(connection.transport, asyncio.Transport):
                connection.transport.abort()
        await serving

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._tls is None:
            await super().startup(sockets)
            return
        await super().startup([])
        for sock in sockets or ():
            listener = TlsListener(sock, self._protocol, self._tls.server_context)
            listener.start()
            self.servers.append(listener)  # type: ignore[arg-type]

    def _protocol(self) -> asyncio.Protocol:
        return BoundedProtocol(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def build_server(
    app: App,
    framed: Callable[[], asyncio.Protocol] | None = None,
    admits: Callable[[asyncio.BaseTransport], bool] | None = None,
    *,
    tls: TlsIdentity | None = None,
    stop_grace_s: float = http_shutdown_grace_s,
) -> HttpServer:
    """Return a server for `await server.serve(sockets=[listen(...)])` on a uvloop loop.

    Set `should_exit` to stop it; requests then have `stop_grace_s` to finish. With `framed`, a connection whose
    first byte is that of a frame gets the protocol that `framed` makes. With `admits`, connections that it does
    not accept are closed at once. With `tls`, the server accepts only TLS.
    """
    config = BoundedConfig(
        app,
        loop="uvloop",
        http=BoundedProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        backlog=http_connections_max,
        timeout_keep_alive=http_keep_alive_s,
        timeout_graceful_shutdown=stop_grace_s,
        framed=framed,
        admits=admits,
    )
    return HttpServer(config, tls)
