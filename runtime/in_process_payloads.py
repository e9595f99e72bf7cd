"""Large payloads between two ends of a connection that are in one process: a gateway and its own data server.

What one end holds in memory the other may look at there. The head of a frame goes through the socket, with all
that this brings: the order, the deadlines, the end of a connection. A payload that is too large to come with it is
passed as it lies, no further ahead than a socket would let it.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Final, Protocol

from peacefs.protocol.checksums import Bytes
from peacefs.protocol.errors import ProtocolViolation
from peacefs.protocol.limits import MIB

# Payloads given and not taken within one process: so little that it is still in the processor's cache.
in_process_bytes_max: Final = 1 * MIB


#: Addresses and ports of a connection: one's own, then the peer's.
Ends = tuple[tuple[str, int], tuple[str, int]]


class InProcessPayloads:
    """From who connected to who serves. Thread-safe."""

    def __init__(self, bytes_max: int = in_process_bytes_max) -> None:
        self._bytes_max = bytes_max
        self._changed = threading.Condition()
        self._payloads: deque[Bytes] = deque()
        self._waiting_bytes = 0
        self._is_over = False

    def give(self, payload: Bytes, timeout_s: float) -> bool:
        """False if there was no room in time. After the end nobody takes it, as the socket will tell.

        The payload must not change until the connection is closed, or the request that it is part of answered.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._has_room(len(payload)), timeout_s):
                return False
            if not self._is_over:
                self._payloads.append(payload)
                self._waiting_bytes += len(payload)
            return True

    def take(self) -> memoryview:
        """The payload of a frame whose head has come."""
        with self._changed:
            if not self._payloads:
                raise ProtocolViolation("a frame came without the payload that was to come in memory")
            payload = self._payloads.popleft()
            self._waiting_bytes -= len(payload)
            self._changed.notify()
        return memoryview(payload)

    def end(self) -> None:
        """Wakes who waits for room, and lets go of what was not taken."""
        with self._changed:
            self._is_over = True
            self._payloads.clear()
            self._changed.notify_all()

    def _has_room(self, count: int) -> bool:
        return self._is_over or not self._payloads or self._waiting_bytes + count <= self._bytes_max


class InProcessConnection(Protocol):
    """The part of a connection that this module uses."""

    @property
    def ends(self) -> Ends | None:
        """None once it is closed."""
        ...

    def takes_from(self, payloads: InProcessPayloads) -> None: ...

    def gives_to(self, payloads: InProcessPayloads) -> None: ...


class ServedHere:
    """The connections that this process serves, for those who find that they have connected to themselves."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._served: dict[Ends, InProcessConnection] = {}
        self._ends_of: dict[InProcessConnection, Ends] = {}

    def add(self, connection: InProcessConnection) -> None:
        """To be called before the hello, so that who connected finds it after."""
        ends = connection.ends
        if ends is not None:
            with self._lock:
                self._served[ends] = connection
                self._ends_of[connection] = ends

    def remove(self, connection: InProcessConnection) -> None:
        """Before it is closed: its ends may then be another's."""
        with self._lock:
            ends = self._ends_of.pop(connection, None)
            if ends is not None:
                del self._served[ends]

    def join(self, connecting: InProcessConnection) -> None:
        """Let both ends pass payloads in memory from now on, if the other one is here.

        Nothing may be under way.
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
