"""A stream of bytes from the producer of a file to the participant that writes the file.

The producer may be on any thread, even an event loop's, since no call here blocks. The stream tells the producer
when it is far enough ahead of the writer, and the writer when the bytes end or the producer gives up.
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
    """Connects one producer with one consumer. Thread-safe.

    A side that gives up calls `abort`; the other side gets the error at its next step. Tickets are kept after they
    were fired, so that `abort` can fire them again if Ctrl-C interrupted the producer before it did so.
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
        """Return a stream that is complete from the start."""
        stream = cls()
        stream.feed(data)
        stream.finish()
        return stream

    # -- the producer's side -----------------------------------------------------------------------

    def feed(self, data: Bytes) -> fx.Ticket | None:
        """Add `data`. If a ticket is returned, the producer must wait for it before it feeds more.

        Raises the consumer's error if the consumer has given up.
        """
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
        """Mark the end of the bytes."""
        with self._lock:
            self._finished = True
            readable = self._readable
        _fire(readable)

    def abort(self, error: PeacefsError) -> None:
        """Give up, on either side. The first error is kept. Does nothing after the end was taken."""
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
        """True if every byte has been taken and no more will come."""
        with self._lock:
            return self._ended()

    def take(self, bytes_max: int) -> memoryview:
        """Take the next piece, at most `bytes_max`; empty if none has arrived. Raises the producer's error."""
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
        """Wait until there are bytes to take, an error, or the end. Return False after `timeout_s`."""
        with self._lock:
            if self._pieces or self._finished or self._error is not None:
                return True
            self._readable = ticket = fx.Ticket()
        return (yield from fx.wait(ticket, timeout_s=timeout_s))

    @property
    def waiting_bytes(self) -> int:
        """Number of bytes that can be taken."""
        return self._waiting_bytes

    @property
    def finished(self) -> bool:
        """True if the producer has fed everything."""
        return self._finished

    def holds(self, count: int, *, timeout_s: float) -> fx.Steps[bool]:
        """Wait for `count` bytes, an error, or the end. Return False after `timeout_s`."""
        with self._lock:
            if self._waiting_bytes >= count or self._finished or self._error is not None:
                return True
            self._readable = ticket = fx.Ticket()
        yield from fx.wait(ticket, timeout_s=timeout_s)
        with self._lock:
            return self._waiting_bytes >= count or self._finished or self._error is not None

    def more(self) -> fx.Steps[bool]:
        """Wait for the next byte; return False at the end. Raises the producer's error."""
        if not (yield from self.readable(timeout_s=source_silence_s)):
            raise self.silent()
        if self._error is not None:
            raise self._error
        return not self.ended

    def silent(self) -> PeacefsError:
        """Abort because the producer was silent for `limits.source_silence_s`; return the error to raise."""
        error = PeerTimeout(f"the file's source said nothing for {source_silence_s:g} s")
        self.abort(error)
        return self._error or error

    def _ended(self) -> bool:
        return self._finished and not self._pieces


def _fire(ticket: fx.Ticket | None) -> None:
    if ticket is not None:
        ticket.fire()
