"""Verified bytes from a socket whose other end seals what it sends; none comes out before its record verifies."""

from __future__ import annotations

import socket

from peacefs.protocol.limits import frame_ahead_bytes, packet_bytes
from peacefs.protocol.seals import LENGTH_BYTES, RECORD_BYTES_OVER, SEAL_BYTES, Opener, record_length

_NOTHING = memoryview(b"")
# A plain number: flags of an enumeration cost microseconds.
_WAIT_ALL = int(socket.MSG_WAITALL)
#: A small record is received with one call, and the beginning of a large one with it.
_BUFFER_BYTES = frame_ahead_bytes + RECORD_BYTES_OVER


class SealedSource:
    """Stands before a socket's `recv_into`. A record that fits where it is wanted is received there at once."""

    def __init__(self, sock: socket.socket, opener: Opener) -> None:
        self._socket = sock
        self._opener = opener
        self._raw = memoryview(bytearray(_BUFFER_BYTES))
        #: Received bytes from `_at` to `_end` that are not verified yet.
        self._at = self._end = 0
        #: Verified bytes that have not come out yet.
        self._opened = _NOTHING
        self._seal = memoryview(bytearray(SEAL_BYTES))

    @property
    def has_more(self) -> bool:
        """Return whether more has been taken from the socket than came out."""
        return len(self._opened) > 0 or self._at < self._end

    def came_with_file(self, view: memoryview) -> None:
        """These bytes came, in a call that took an open file with them; nothing else was waiting."""
        assert not self.has_more
        self._at, self._end = 0, len(view)
        self._raw[: self._end] = view

    def recv_into(self, view: memoryview, flags: int) -> int | None:
        """Receive verified bytes into `view` and return their number: 0 when the record is not whole; None at the
        end.

        With MSG_WAITALL as many as there is room for, unless time is up. Raises BlockingIOError, OSError,
        ProtocolViolation.
        """
        flags = int(flags)
        waits_for_all = bool(flags & _WAIT_ALL)
        filled = self._give(view)
        if filled and not waits_for_all:
            return filled
        while filled < len(view):
            came = self._lay(view[filled:]) if waits_for_all else 0
            if not came:
                if not self._receive(flags):
                    return None
                came = self._give(view[filled:])
            filled += came
            if not waits_for_all or not came:
                break
        return filled

    def _give(self, view: memoryview) -> int:
        """Give out verified bytes, as many as there is room for."""
        given = 0
        while given < len(view) and (self._opened or self._verify()):
            count = min(len(self._opened), len(view) - given)
            view[given : given + count] = self._opened[:count]
            self._opened = self._opened[count:]
            given += count
        return given

    def _verify(self) -> bool:
        """Return whether a whole record was here; `_opened` is its content."""
        here = self._end - self._at
        if here < LENGTH_BYTES or here < (length := record_length(self._raw, self._at)) + RECORD_BYTES_OVER:
            return False
        begin = self._at + LENGTH_BYTES
        end = begin + length
        self._opener.check(self._raw[begin:end], self._raw[end : end + SEAL_BYTES])
        self._opened = self._raw[begin:end]
        self._at = end + SEAL_BYTES
        return True

    def _receive(self, flags: int) -> int:
        """More of what has not been verified yet. 0 at the end."""
        kept = self._end - self._at
        length = record_length(self._raw, self._at) if kept >= LENGTH_BYTES else None
        needed = _BUFFER_BYTES if length is None else max(_BUFFER_BYTES, length + RECORD_BYTES_OVER)
        if needed != len(self._raw):
            larger = memoryview(bytearray(needed))
            larger[:kept] = self._raw[self._at : self._end]
            self._raw = larger
        elif self._at:
            self._raw[:kept] = bytes(self._raw[self._at : self._end])
        self._at, self._end = 0, kept
        if length is None:
            # It is unknown whether more will come: this takes what is there.
            flags &= ~_WAIT_ALL
            needed = len(self._raw)
        count = self._socket.recv_into(self._raw[kept:needed], 0, flags)
        self._end += count
        return count

    def _lay(self, view: memoryview) -> int:
        """Receives the data of a large record that fits in `view` there; 0 if it is not so."""
        here = self._end - self._at - LENGTH_BYTES
        if here < 0 or not here < (length := record_length(self._raw, self._at)) <= len(view):
            return 0
        begin = self._at + LENGTH_BYTES
        view[:here] = self._raw[begin : self._end]
        self._at = self._end = 0
        wanted = [view[here:length], self._seal]
        while sum(map(len, wanted)):
            count = self._socket.recvmsg_into(wanted, 0, socket.MSG_WAITALL)[0]
            if count == 0:
                raise ConnectionAbortedError("the connection ended within a record")
            if count < min(packet_bytes, sum(map(len, wanted))):
                # It has waited for as long as it may.
                raise BlockingIOError
            wanted = _without(wanted, count)
        self._opener.check(view[:length], self._seal)
        return length


def _without(views: list[memoryview], count: int) -> list[memoryview]:
    rest = []
    for view in views:
        rest.append(view[count:])
        count = max(0, count - len(view))
    return rest
