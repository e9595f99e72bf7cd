"""Receives sealed data from a socket. Bytes are returned only after their record was verified."""

from __future__ import annotations

import socket

from peacefs.protocol.limits import frame_ahead_bytes, packet_bytes
from peacefs.protocol.seals import LENGTH_BYTES, RECORD_BYTES_OVER, SEAL_BYTES, Opener, record_length

_NOTHING = memoryview(b"")
# A plain int, because operations on enum flags take microseconds.
_WAIT_ALL = int(socket.MSG_WAITALL)
#: Large enough to receive a small record and the beginning of the next with one call.
_BUFFER_BYTES = frame_ahead_bytes + RECORD_BYTES_OVER


class SealedSource:
    """A replacement for a socket's `recv_into`. Large records are received directly into the caller's buffer.

    SocketConnection uses it after the handshake. No byte is returned before its record is verified.
    """

    def __init__(self, sock: socket.socket, opener: Opener) -> None:
        self._socket = sock
        self._opener = opener
        self._raw = memoryview(bytearray(_BUFFER_BYTES))
        #: Received bytes that are not verified are those from `_at` to `_end`.
        self._at = self._end = 0
        #: Verified bytes that were not returned yet.
        self._opened = _NOTHING
        self._seal = memoryview(bytearray(SEAL_BYTES))

    @property
    def opener(self) -> Opener:
        return self._opener

    @property
    def has_more(self) -> bool:
        """True if bytes were received and not returned yet."""
        return len(self._opened) > 0 or self._at < self._end

    def came_with_file(self, view: memoryview) -> None:
        """Add bytes that were received together with an open file. No other bytes may be waiting."""
        assert not self.has_more
        self._at, self._end = 0, len(view)
        self._raw[: self._end] = view

    def recv_into(self, view: memoryview, flags: int) -> int | None:
        """Receive verified bytes into `view`; return their number: 0 if the record is incomplete, None at the end.

        With MSG_WAITALL, fill `view` unless the socket's timeout expires. Raises BlockingIOError, OSError,
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
        """Copy verified bytes into `view`; return their number."""
        given = 0
        while given < len(view) and (self._opened or self._verify()):
            count = min(len(self._opened), len(view) - given)
            view[given : given + count] = self._opened[:count]
            self._opened = self._opened[count:]
            given += count
        return given

    def _verify(self) -> bool:
        """Verify the next record into `_opened`; return False if it is incomplete."""
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
        """Receive more bytes into `_raw`; return their number, 0 at the end of the stream."""
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
            # The record's length is unknown, so do not wait for more than has arrived.
            flags &= ~_WAIT_ALL
            needed = len(self._raw)
        count = self._socket.recv_into(self._raw[kept:needed], 0, flags)
        self._end += count
        return count

    def _lay(self, view: memoryview) -> int:
        """Receive the data of an incomplete record directly into `view`; 0 if it does not fit or is complete."""
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
                # The call has used up the socket's timeout.
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
