"""The connection of one answer, for a thread that sends a long body itself.

What an event loop sends goes out in as many small steps as the client's window has: each wakes the loop, and each
piece comes to it from a thread. A thread that has read a piece sends it at once, without waiting for more than a
moment, and gives the loop what the client did not take. Silence and crowds are then the loop's, as for any answer.

Plain TCP alone: over TLS the transport holds the keys.
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

# A thread that sends what it has read goes on until it has sent so much, or has waited so long for the client in
# all. Then it is others' turn.
direct_turn_bytes: Final = 8 * MIB
direct_wait_s: Final = 0.02


#: The place of a `BodySocket` in the scope of a request, if its connection is plain.
_SCOPE_KEY = "peacefs.body"


class Turn:
    """One thread's turn to send, which whoever gave it may end at any time. Thread-safe."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._room = select.poll()
        self._room.register(connection, select.POLLOUT)
        self._wait_s = direct_wait_s
        self._lock = threading.Lock()
        self._is_over = False
        #: The bytes that have left, and the rest of a piece that the client did not take in time.
        self.sent = 0
        self.rest: memoryview | None = None
        self.is_client_gone = False

    def send(self, piece: bytes | memoryview) -> bool:
        """Send a piece, and return whether there is room for more in this turn. What is left of it is `rest`."""
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
        """Return how many bytes the client has room for."""
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
        """Wait for it, for what is left of the turn's moment."""
        began_s = time.monotonic()
        has_room = bool(self._room.poll(self._wait_s * 1000))
        self._wait_s = max(0.0, self._wait_s - (time.monotonic() - began_s))
        return has_room

    @property
    def taken(self) -> int:
        """Return how many bytes it has taken in: those that have left and the rest."""
        return self.sent + (0 if self.rest is None else len(self.rest))

    def end(self) -> int:
        """Let nothing be sent any more; return how many bytes were."""
        with self._lock:
            self._is_over = True
            return self.sent


class BodySocket:
    """Belongs to the event loop; `close` it when the body is over."""

    def __init__(self, transport: asyncio.Transport, cycle: Any) -> None:
        """`cycle` is uvicorn's account of the answer."""
        self._transport = transport
        self._cycle = cycle
        self._connection: socket.socket | None = None

    async def turn(self) -> Turn | None:
        """Return a turn once all that the loop was given has left; None if the client has gone."""
        if self._transport.is_closing():
            return None
        if self._connection is None:
            # The transport says so, too, when the last byte has left.
            self._transport.set_write_buffer_limits(high=0)
            # A descriptor of its own: the transport's may be closed, and be another's, while a thread sends.
            own = os.dup(self._transport.get_extra_info("socket").fileno())
            self._connection = socket.socket(fileno=own)
        await self._cycle.flow.drain()
        return None if self._transport.is_closing() else Turn(self._connection)

    def account(self, count: int) -> None:
        """So many bytes of the body have been sent by a turn."""
        self._cycle.expected_content_length -= count

    def abort(self) -> None:
        """Close the client's connection."""
        self._transport.abort()

    def close(self) -> None:
        """Leave the connection to the loop."""
        if self._connection is not None:
            self._connection.close()
            if not self._transport.is_closing():
                self._transport.set_write_buffer_limits()


def offer_socket(scope: Scope, transport: asyncio.Transport, cycle: Any) -> None:
    """Let whoever answers a request over plain TCP send from a thread."""
    if transport.get_extra_info("sslcontext") is None:
        scope[_SCOPE_KEY] = BodySocket(transport, cycle)


def body_socket(scope: Scope) -> BodySocket | None:
    """The connection of a request; None where only the loop may send."""
    return scope.get(_SCOPE_KEY)
