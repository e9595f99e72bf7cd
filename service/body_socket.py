"""Lets a thread send a long HTTP body over the connection itself, without the event loop.

The event loop would send a long body in many small steps, each of which wakes it up. Instead, the thread that has
read a piece sends it at once and waits only briefly for the client. What the client does not accept in time goes
to the event loop, which applies the same deadlines and limits as to any answer.

Plain TCP only: over TLS, only the transport has the keys.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import threading
import time
from typing import Any, Final

from peacefs.protocol.asgi import Scope
from peacefs.protocol.limits import MIB

# A thread's turn ends after it has sent this many bytes, or has waited for the client for this long in total.
direct_turn_bytes: Final = 8 * MIB
direct_wait_s: Final = 0.02


#: Key of the `BodySocket` in a request's ASGI scope. Absent over TLS.
_SCOPE_KEY = "peacefs.body"


class Turn:
    """A limited permit for one thread to send. The event loop may `end` it at any time. Thread-safe."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._room = select.poll()
        self._room.register(connection, select.POLLOUT)
        self._wait_s = direct_wait_s
        self._lock = threading.Lock()
        self._is_over = False
        #: Bytes sent, and the rest of a piece that the client did not accept in time.
        self.sent = 0
        self.rest: memoryview | None = None
        self.is_client_gone = False

    def send(self, piece: bytes | memoryview) -> bool:
        """Send a piece; return whether the turn allows more. An unsent remainder is stored in `rest`."""
        view = memoryview(piece)
        while view:
            with self._lock:
                view = view[self._send_now(view) :]
                if self._is_over:
                    return False
            if view and not self._has_room():
                with self._lock:
                    self.rest = None if self._is_over else view
                return False
        return self.sent < direct_turn_bytes

    def _send_now(self, view: memoryview) -> int:
        """Send without blocking; return the number of bytes sent."""
        if self._is_over:
            return 0
        try:
            count = self._connection.send(view, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0
        except OSError:
            self._is_over = self.is_client_gone = True
            return 0
        self.sent += count
        return count

    def _has_room(self) -> bool:
        """Wait until the socket is writable, at most for the turn's remaining waiting time."""
        began_s = time.monotonic()
        has_room = bool(self._room.poll(self._wait_s * 1000))
        self._wait_s = max(0.0, self._wait_s - (time.monotonic() - began_s))
        return has_room

    @property
    def taken(self) -> int:
        """Number of bytes accepted by `send`: those sent and those in `rest`."""
        return self.sent + (0 if self.rest is None else len(self.rest))

    def end(self) -> int:
        """End the turn, so that nothing more is sent; return the number of bytes sent."""
        with self._lock:
            self._is_over = True
            return self.sent


class BodySocket:
    """Hands out turns to send the body of one answer. Used on the event loop; `close` it after the body."""

    def __init__(self, transport: asyncio.Transport, cycle: Any) -> None:
        """`cycle` is uvicorn's RequestResponseCycle of the answer."""
        self._transport = transport
        self._cycle = cycle
        self._connection: socket.socket | None = None

    async def turn(self) -> Turn | None:
        """Wait until the loop has sent its own data, then return a turn; None if the client has disconnected."""
        if self._transport.is_closing():
            return None
        if self._connection is None:
            # With this limit, `drain` returns only when the transport's buffer is empty.
            self._transport.set_write_buffer_limits(high=0)
            # A duplicate, since the transport's descriptor may be closed and reused while a thread sends.
            own = os.dup(self._transport.get_extra_info("socket").fileno())
            self._connection = socket.socket(fileno=own)
        await self._cycle.flow.drain()
        return None if self._transport.is_closing() else Turn(self._connection)

    def account(self, count: int) -> None:
        """Tell uvicorn that a turn has sent `count` bytes of the body."""
        self._cycle.expected_content_length -= count

    def abort(self) -> None:
        self._transport.abort()

    def close(self) -> None:
        """Return the connection to the loop."""
        if self._connection is not None:
            self._connection.close()
            if not self._transport.is_closing():
                self._transport.set_write_buffer_limits()


def offer_socket(scope: Scope, transport: asyncio.Transport, cycle: Any) -> None:
    """Put a BodySocket into the scope of a request over plain TCP."""
    if transport.get_extra_info("sslcontext") is None:
        scope[_SCOPE_KEY] = BodySocket(transport, cycle)


def body_socket(scope: Scope) -> BodySocket | None:
    """Return the BodySocket of a request, or None if only the event loop may send."""
    return scope.get(_SCOPE_KEY)
