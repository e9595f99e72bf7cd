"""Passes large payloads in memory if both ends of a connection are in one process: a gateway and its data server.

The head of a frame still goes through the socket, which keeps the order, the deadlines and the end of the
connection. A payload that is too large to be received with the head is passed by reference, without a copy. The
amount of payloads in transit is limited, as a socket would limit it.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Final, Protocol

from peacefs.protocol.checksums import Bytes
from peacefs.protocol.errors import ProtocolViolation
from peacefs.protocol.limits import MIB

# Limit on payloads in transit: small enough to stay in the processor's cache.
in_process_bytes_max: Final = 1 * MIB


#: The two addresses of a connection: this end's, then the peer's.
Ends = tuple[tuple[str, int], tuple[str, int]]


class InProcessPayloads:
    """Payloads on their way from the connecting end to the serving end. Thread-safe."""

    def __init__(self, bytes_max: int = in_process_bytes_max) -> None:
        self._bytes_max = bytes_max
        self._changed = threading.Condition()
        self._payloads: deque[Bytes] = deque()
        self._waiting_bytes = 0
        self._is_over = False

    def give(self, payload: Bytes, timeout_s: float) -> bool:
        """Pass a payload; return False if there was no space in time. After `end` it is discarded.

        The payload must not change until the connection is closed or the request is answered.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._has_room(len(payload)), timeout_s):
                return False
            if not self._is_over:
                self._payloads.append(payload)
                self._waiting_bytes += len(payload)
            return True

    def take(self) -> memoryview:
        """Return the payload of the frame whose head was received. Raises ProtocolViolation if there is none."""
        with self._changed:
            if not self._payloads:
                raise ProtocolViolation("a frame came without the payload that was to come in memory")
            payload = self._payloads.popleft()
            self._waiting_bytes -= len(payload)
            self._changed.notify()
        return memoryview(payload)

    def end(self) -> None:
        """Discard the payloads in transit, and wake threads that wait for space."""
        with self._changed:
            self._is_over = True
            self._payloads.clear()
            self._changed.notify_all()

    def _has_room(self, count: int) -> bool:
        return self._is_over or not self._payloads or self._waiting_bytes + count <= self._bytes_max


class InProcessConnection(Protocol):
    """The interface of a connection that this module uses."""

    @property
    def ends(self) -> Ends | None:
        """The two addresses; None if the connection is closed."""
        ...

    def takes_from(self, payloads: InProcessPayloads) -> None: ...

    def gives_to(self, payloads: InProcessPayloads) -> None: ...


class ServedHere:
    """The connections that this process serves, to detect connections of the process to itself."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._served: dict[Ends, InProcessConnection] = {}
        self._ends_of: dict[InProcessConnection, Ends] = {}

    def add(self, connection: InProcessConnection) -> None:
        """Register a connection. Call this before the handshake, so that the connecting end finds it
        afterwards.
        """
        ends = connection.ends
        if ends is not None:
            with self._lock:
                self._served[ends] = connection
                self._ends_of[connection] = ends

    def remove(self, connection: InProcessConnection) -> None:
        """Unregister a connection. Call this before closing it, since its addresses may then be reused."""
        with self._lock:
            ends = self._ends_of.pop(connection, None)
            if ends is not None:
                del self._served[ends]

    def join(self, connecting: InProcessConnection) -> None:
        """Pass payloads in memory from now on, if the other end is in this process.

        Call this while the connection is idle.
        """
        ends = connecting.ends
        if ends is None:
            return
        with self._lock:
            serving = self._served.get((ends[1], ends[0]))
        if serving is not None:
            payloads = InProcessPayloads()
            serving.takes_from(payloads)
            connecting.gives_to(payloads)
