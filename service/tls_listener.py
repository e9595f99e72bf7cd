"""Accepts TLS connections for asyncio servers, and hands them over after the TLS handshake.

Clients that do not use TLS get a refusal in plain text. The number and duration of handshakes is limited. The SSL
context is looked up for each connection, so a new certificate is used without a restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Final

from peacefs.protocol.limits import tls_handshake_timeout_s
from peacefs.runtime.tls import ServerContext
from peacefs.runtime.tls_faults import TLS_FIRST_BYTE, explain, plain_refusal
from peacefs.service.limits import http_linger_s

from .client_shares import client_of

# Maximum number of concurrent TLS handshakes. Above it, the oldest one is cancelled.
tls_handshakes_max: Final = 512
# Maximum number of these per client. Above it, the client's own oldest one is cancelled.
tls_handshakes_client_max: Final = 256
# How long to wait for the peer's answer when a TLS connection is closed.
tls_shutdown_timeout_s: Final = 2.0
# Minimum pause between two log lines about failed handshakes; each line tells how many there were.
tls_fault_log_pause_s: Final = 5.0


log = logging.getLogger("peacefs.tls")
_ACCEPT_RETRY_S = 0.1
_PEEKED_BYTES = 16


def channel_of(transport: asyncio.BaseTransport) -> bytes:
    """Return the SHA-256 of the certificate that this side showed on a connection; empty without TLS."""
    context = transport.get_extra_info("sslcontext")
    return context.channel if isinstance(context, ServerContext) else b""


class TlsListener:
    """Accepts TLS connections on one listening socket, from `start` to `close`, on one event loop.

    HttpServer and the coordinator's RPC server use it like an asyncio server. `factory` makes the
    protocol of a connection after its handshake.
    """

    def __init__(
        self,
        listener: socket.socket,
        factory: Callable[[], asyncio.Protocol],
        context: Callable[[], ServerContext],
        *,
        handshakes_max: int = tls_handshakes_max,
        handshakes_client_max: int = tls_handshakes_client_max,
        handshake_timeout_s: float = tls_handshake_timeout_s,
    ) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._factory = factory
        self._context = context
        self._handshakes_max = handshakes_max
        self._handshakes_client_max = handshakes_client_max
        self._handshake_timeout_s = handshake_timeout_s
        #: The running handshakes, oldest first, and the client of each.
        self._strangers: dict[asyncio.Task[None], str] = {}
        self._accepting: asyncio.Task[None] | None = None
        self._logged_s = -inf
        self._unlogged = 0

    def start(self) -> None:
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    def close(self) -> None:
        for task in (self._accepting, *self._strangers):
            if task is not None:
                task.cancel()
        self._listener.close()

    async def wait_closed(self) -> None:
        tasks = [task for task in (self._accepting, *self._strangers) if task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, address = await loop.sock_accept(self._listener)
            except OSError as error:
                # For instance out of descriptors; connections that end will free some.
                log.warning("cannot accept a connection: %s", error.strerror or error)
                await asyncio.sleep(_ACCEPT_RETRY_S)
                continue
            client = client_of(address[0])
            self._make_room(client)
            task = loop.create_task(self._greet(sock, f"{address[0]}:{address[1]}"))
            self._strangers[task] = client
            task.add_done_callback(partial(self._greeted, sock))

    def _greeted(self, sock: socket.socket, task: asyncio.Task[None]) -> None:
        self._strangers.pop(task, None)
        if task.cancelled():
            # A task that was cancelled before it began has not closed the socket.
            sock.close()

    def _make_room(self, client: str) -> None:
        """Above a limit, cancel the oldest handshake; above the client's limit, the client's own oldest one."""
        crowd = list(self._strangers)
        if len(crowd) >= self._handshakes_client_max:
            own = [task for task in crowd if self._strangers[task] == client]
            if len(own) >= self._handshakes_client_max:
                crowd = own
            elif len(crowd) < self._handshakes_max:
                return
            del self._strangers[crowd[0]]
            crowd[0].cancel()

    async def _greet(self, sock: socket.socket, name: str) -> None:
        try:
            async with asyncio.timeout(self._handshake_timeout_s):
                first = await _peek(sock)
                if first[:1] == TLS_FIRST_BYTE:
                    await self._shake_hands(sock)
                    return
                if first:
                    self._say(f"{name} does not speak TLS, as this port does")
        except TimeoutError:
            self._say(f"{name} did not finish the TLS handshake in time")
            sock.close()
        except ssl.SSLError as fault:
            self._say(f"{name} {explain(fault)}")
        except OSError:
            # The client has disconnected.
            sock.close()
        except BaseException:
            sock.close()
            raise
        else:
            await _refuse(sock, first)

    async def _shake_hands(self, sock: socket.socket) -> None:
        await asyncio.get_running_loop().connect_accepted_socket(
            self._factory,
            sock,
            ssl=self._context(),
            ssl_handshake_timeout=self._handshake_timeout_s,
            ssl_shutdown_timeout=tls_shutdown_timeout_s,
        )

    def _say(self, what: str) -> None:
        """Log a fault, with at least `tls_fault_log_pause_s` between two lines."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._logged_s < tls_fault_log_pause_s:
            self._unlogged += 1
            return
        more = f" (and {self._unlogged} more faults like this lately)" if self._unlogged else ""
        self._logged_s, self._unlogged = now_s, 0
        log.warning("a TLS handshake failed: %s%s", what, more)


async def _peek(sock: socket.socket) -> bytes:
    """Wait for the first bytes and return them without consuming them; empty at the end of the stream."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(BlockingIOError):
        return sock.recv(_PEEKED_BYTES, socket.MSG_PEEK)
    come: asyncio.Future[None] = loop.create_future()
    loop.add_reader(sock, lambda: None if come.done() else come.set_result(None))
    try:
        await come
    finally:
        loop.remove_reader(sock)
    return sock.recv(_PEEKED_BYTES, socket.MSG_PEEK)


async def _refuse(sock: socket.socket, first: bytes) -> None:
    """Send a refusal and close. Drain the input meanwhile: closing with unread data would discard the answer."""
    loop = asyncio.get_running_loop()
    try:
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(http_linger_s):
                await loop.sock_sendall(sock, plain_refusal(first))
                sock.shutdown(socket.SHUT_WR)
                while await loop.sock_recv(sock, 65536):
                    pass
    finally:
        sock.close()
