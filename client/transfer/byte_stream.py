"""Bytes of a file on their way from whoever produces them to the participant that writes them.

The producer may be on any thread, an event loop's included: nothing here blocks it. It is told when it is far
enough ahead of the writer. The writer is told when the bytes end, or that they never will.
"""

from __future__ import annotations

import threading
from collections import deque

from peacefs.client.limits import stream_buffer_bytes
from peacefs.protocol.checksums import Bytes
from peacefs.protocol.errors import PeacefsError, PeerTimeout
from peacefs.protocol.limits import source_silence_s
from peacefs.runtime import effects as fx


class ByteStream:
    """One producer, one consumer. Thread-safe.

    Whichever side gives up calls `abort`; the other then meets the error at its next step. A ticket stays in its
    place when it is fired: `abort` fires it again, where Ctrl-C has kept the producer from doing so.
    """

    def __init__(self, buffer_bytes: int = stream_buffer_bytes) -> None:
        self._buffer_bytes = buffer_bytes
        self._lock = threading.Lock()
        self._pieces: deque[memoryview] = deque()
        self._waiting_bytes = 0
        self._finished = False
        self._error: PeacefsError | None = None
        self._readable: fx.Ticket | None = None
        self._room: fx.Ticket | None = None

    @classmethod
    def of(cls, data: bytes) -> ByteStream:
        """A stream that is complete from the start."""
        stream = cls()
        stream.feed(data)
        stream.finish()
        return stream

    # -- the producer's side -----------------------------------------------------------------------

    def feed(self, data: Bytes) -> fx.Ticket | None:
        """Takes all of `data`. A producer that gets a ticket waits for it before it feeds more.

        Raises the error of the consumer that has given up.
        """
        # Data other than `bytes` may change after this call, so it is copied.
        piece = memoryview(data if isinstance(data, bytes) else bytes(data))
        with self._lock:
            if self._error is not None:
                raise self._error
            assert not self._finished, "fed after finish"
            if len(piece):
                self._pieces.append(piece)
                self._waiting_bytes += len(piece)
            if self._waiting_bytes >= self._buffer_bytes and self._room is None:
                self._room = fx.Ticket()
            room, readable = self._room, self._readable
        _fire(readable)
        return room

    def finish(self) -> None:
        """The bytes end here."""
        with self._lock:
            self._finished = True
            readable = self._readable
        _fire(readable)

    def abort(self, error: PeacefsError) -> None:
        """The rest will never come, or never be taken. The first error stands; after the end it is too late."""
        with self._lock:
            if self._error is None and not self._ended():
                self._error = error
            readable, room = self._readable, self._room
        _fire(readable)
        _fire(room)

    # -- the consumer's side -----------------------------------------------------------------------

    @property
    def error(self) -> PeacefsError | None:
        return self._error

    @property
    def ended(self) -> bool:
        """Return whether every byte has been taken and no more will come."""
        with self._lock:
            return self._ended()

    def take(self, bytes_max: int) -> memoryview:
        """Take what is there, up to `bytes_max`, in one piece, or nothing. Raises the producer's error."""
        with self._lock:
            if self._error is not None:
                raise self._error
            if not self._pieces:
                return memoryview(b"")
            piece = self._pieces.popleft()
            if len(piece) > bytes_max:
                self._pieces.appendleft(piece[bytes_max:])
                piece = piece[:bytes_max]
            self._waiting_bytes -= len(piece)
            room = None
            if self._waiting_bytes < self._buffer_bytes:
                room, self._room = self._room, None
        _fire(room)
        return piece

    def readable(self, *, timeout_s: float) -> fx.Steps[bool]:
        """Waits until `take` has something to give or to raise, or the end has come; False when time is over."""
        with self._lock:
            if self._pieces or self._finished or self._error is not None:
                return True
            self._readable = ticket = fx.Ticket()
        return (yield from fx.wait(ticket, timeout_s=timeout_s))

    @property
    def waiting_bytes(self) -> int:
        """Return how much lies here to be taken."""
        return self._waiting_bytes

    @property
    def finished(self) -> bool:
        """Return whether all that will come is here."""
        return self._finished

    def holds(self, count: int, *, timeout_s: float) -> fx.Steps[bool]:
        """Waits until so many bytes are here, or all that will come, or an error; False when time is over."""
        with self._lock:
            if self._waiting_bytes >= count or self._finished or self._error is not None:
                return True
            self._readable = ticket = fx.Ticket()
        yield from fx.wait(ticket, timeout_s=timeout_s)
        with self._lock:
            return self._waiting_bytes >= count or self._finished or self._error is not None

    def more(self) -> fx.Steps[bool]:
        """Waits for a byte (True) or the end (False). Raises the producer's error."""
        if not (yield from self.readable(timeout_s=source_silence_s)):
            raise self.silent()
        if self._error is not None:
            raise self._error
        return not self.ended

    def silent(self) -> PeacefsError:
        """Gives up a producer that has said nothing for `limits.source_silence_s`; the error to raise."""
        error = PeerTimeout(f"the file's source said nothing for {source_silence_s:g} s")
        self.abort(error)
        return self._error or error

    def _ended(self) -> bool:
        return self._finished and not self._pieces


def _fire(ticket: fx.Ticket | None) -> None:
    if ticket is not None:
        ticket.fire()
