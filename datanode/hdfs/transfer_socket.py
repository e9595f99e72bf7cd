"""A blocking socket of the data transfer protocol, with deadlines."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import time
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeVar

from google.protobuf.message import Message

from peacefs.protocol.checksums import Bytes
from peacefs.protocol.errors import BadRequest, PeerError, PeerTimeout, PeerUnreachable
from peacefs.protocol.hadoop.data_transfer import (
    OPERATION,
    PACKET_LENGTHS,
    Operation,
    decode_length,
    decode_message,
    decode_operation,
    decode_packet_header,
    decode_packet_lengths,
    delimited,
)
from peacefs.protocol.hadoop.datatransfer_pb2 import PacketHeaderProto
from peacefs.protocol.limits import KIB, last_word_timeout_s
from peacefs.runtime.secret import is_loopback

# Maximum number of bytes per receive call. For a larger packet, the buffer grows while it arrives.
ahead_bytes: Final = 256 * KIB
# A request or packet must be complete within this time after its first byte.
begun_message_timeout_s: Final = 15.0

_FAULTS_OF_A_PEER: Final = (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN, errno.ESHUTDOWN, errno.ETIMEDOUT)
M = TypeVar("M", bound=Message)


class Packet(NamedTuple):
    """A packet; `sums` and `data` are valid until the next call that receives."""

    header: PacketHeaderProto
    sums: memoryview
    data: memoryview


class TransferSocket:
    """One client's connection. Belongs to one thread, except `shut_down`."""

    def __init__(self, sock: socket.socket, peer: str) -> None:
        sock.setblocking(False)
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._socket = sock
        self.peer = peer
        self._readable = select.poll()
        self._readable.register(sock, select.POLLIN)
        self._writable = select.poll()
        self._writable.register(sock, select.POLLOUT)
        #: The bytes from `_at` to `_end` were received but not returned yet.
        self._buffer = bytearray(4 * KIB)
        self._at = self._end = 0

    # -- receiving -----------------------------------------------------------------------------------

    def has_more(self, timeout_s: float = 0.0) -> bool:
        """Wait up to `timeout_s` for data or for the end of the stream; return whether either came."""
        return self._end > self._at or bool(self._readable.poll(max(0.0, timeout_s) * 1000))

    def begins_with(self, magic: bytes) -> bool:
        """Return whether the client's first bytes are these. Return False if they do not arrive in time."""
        deadline_s = time.monotonic() + begun_message_timeout_s
        try:
            while self._end - self._at < len(magic):
                if not magic.startswith(self._buffer[self._at : self._end]):
                    return False
                self._fill(self._end - self._at + 1, deadline_s)
        except PeerError:
            return False
        return self._buffer[self._at :].startswith(magic)

    def receive_some(self) -> bytes:
        """Return some received bytes; empty at the end."""
        try:
            self._fill(1, time.monotonic() + begun_message_timeout_s)
        except PeerUnreachable:
            return b""
        some, self._at = bytes(self._buffer[self._at : self._end]), self._end
        return some

    @property
    def is_local(self) -> bool:
        """True if the client is on this machine."""
        with contextlib.suppress(OSError):
            return is_loopback(self._socket.getpeername()[0])
        return False

    def receive_operation(self, wait_s: float) -> Operation | None:
        """Return the next operation; None if the client disconnects or is silent for `wait_s`."""
        if not self.has_more(wait_s):
            return None
        deadline_s = time.monotonic() + begun_message_timeout_s
        try:
            self._fill(1, deadline_s)
        except PeerUnreachable:
            return None
        with self._whole():
            return decode_operation(self._take(OPERATION.size, deadline_s))

    def receive_request(self, kind: type[M]) -> M:
        """Return the request message of an operation. Raises BadRequest if the client disconnects inside it."""
        with self._whole():
            return self.receive_message(kind)

    @contextlib.contextmanager
    def _whole(self) -> Iterator[None]:
        try:
            yield
        except PeerUnreachable:
            raise BadRequest(f"{self.peer} closed the connection in the middle of a request") from None
        except PeerTimeout as error:
            raise BadRequest(error.message) from None

    def receive_message(self, kind: type[M], wait_s: float = begun_message_timeout_s) -> M:
        """Return the next message without an operation header."""
        deadline_s = time.monotonic() + wait_s
        self._fill(1, deadline_s)
        while (found := decode_length(memoryview(self._buffer)[self._at : self._end])) is None:
            self._fill(self._end - self._at + 1, deadline_s)
        length, size = found
        self._at += size
        return decode_message(kind, self._take(length, deadline_s))

    def receive_packet(self) -> Packet:
        deadline_s = time.monotonic() + begun_message_timeout_s
        lengths = decode_packet_lengths(self._take(PACKET_LENGTHS.size, deadline_s))
        whole = self._take(lengths.header + lengths.body, deadline_s)
        header = decode_packet_header(whole[: lengths.header], lengths.body)
        data_at = len(whole) - header.dataLen
        return Packet(header, whole[lengths.header : data_at], whole[data_at:])

    def _take(self, count: int, deadline_s: float) -> memoryview:
        self._fill(count, deadline_s)
        start, self._at = self._at, self._at + count
        return memoryview(self._buffer)[start : self._at]

    def _fill(self, count: int, deadline_s: float) -> None:
        """Receive until the buffer has `count` bytes. This invalidates data returned earlier."""
        while self._end - self._at < count:
            if self._end == len(self._buffer) or (self._at and self._at + count > len(self._buffer)):
                self._make_room(count)
            try:
                came = self._socket.recv_into(memoryview(self._buffer)[self._end :])
            except BlockingIOError:
                if not self._readable.poll(max(0.0, deadline_s - time.monotonic()) * 1000):
                    raise PeerTimeout(f"{self.peer} sends too slowly") from None
                continue
            except OSError as error:
                raise self._broken(error) from None
            if not came:
                raise PeerUnreachable(f"{self.peer} closed the connection")
            self._end += came

    def _make_room(self, count: int) -> None:
        """Move unread bytes to the front. The buffer grows by received bytes, not by the announced size."""
        kept = bytes(memoryview(self._buffer)[self._at : self._end])
        size = len(self._buffer)
        if len(kept) == size:
            size = max(2 * size, min(count, ahead_bytes))
        elif count <= ahead_bytes < size and len(kept) <= ahead_bytes // 2:
            size = ahead_bytes
        if size != len(self._buffer):
            self._buffer = bytearray(size)
        self._buffer[: len(kept)] = kept
        self._at, self._end = 0, len(kept)

    # -- sending -------------------------------------------------------------------------------------

    def send_message(self, message: Message, timeout_s: float = begun_message_timeout_s) -> None:
        self.send_all(delimited(message), timeout_s=timeout_s)

    def send_all(self, *buffers: Bytes, timeout_s: float, more: bool = False) -> None:
        """Send all bytes. With `more`, the kernel waits for the next bytes before it sends a packet."""
        flags = socket.MSG_MORE if more else 0
        parts = [memoryview(buffer) for buffer in buffers if len(buffer)]
        deadline_s = time.monotonic() + timeout_s
        while parts:
            try:
                sent = self._socket.sendmsg(parts, (), flags)
            except BlockingIOError:
                self._await_room(deadline_s)
                continue
            except OSError as error:
                raise self._broken(error) from None
            while parts and sent >= len(parts[0]):
                sent -= len(parts.pop(0))
            if parts:
                parts[0] = parts[0][sent:]

    def send_now(self, raw: bytes) -> None:
        """Send a few bytes if the kernel has room for them; otherwise do nothing."""
        with contextlib.suppress(OSError):
            self._socket.send(raw)

    def send_part(self, descriptor: int, offset: int, length: int, timeout_s: float) -> None:
        """Send a part of a file. Raises OSError if the disk fails."""
        end = offset + length
        deadline_s = time.monotonic() + timeout_s
        while offset < end:
            try:
                sent = os.sendfile(self._socket.fileno(), descriptor, offset, end - offset)
            except BlockingIOError:
                self._await_room(deadline_s)
                continue
            except OSError as error:
                if error.errno in _FAULTS_OF_A_PEER:
                    raise self._broken(error) from None
                raise
            if not sent:
                raise OSError(errno.EIO, "the file has become shorter")
            offset += sent
            deadline_s = time.monotonic() + timeout_s

    def _await_room(self, deadline_s: float) -> None:
        if not self._writable.poll(max(0.0, deadline_s - time.monotonic()) * 1000):
            raise PeerTimeout(f"{self.peer} takes what it is sent too slowly")

    def _broken(self, error: OSError) -> PeerUnreachable:
        return PeerUnreachable(f"the connection to {self.peer} broke: {error.strerror or error}")

    # -- the end -------------------------------------------------------------------------------------

    def shut_down(self) -> None:
        """Shut the connection down, which wakes the thread that uses it. May be called on any thread."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close_politely(self) -> None:
        """Close after the client has read the last answer, or soon. Unread input would make TCP discard it."""
        deadline_s = time.monotonic() + last_word_timeout_s
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            while (left_s := deadline_s - time.monotonic()) > 0 and self._readable.poll(left_s * 1000):
                if not self._socket.recv(ahead_bytes):
                    break
        self.close()

    def close(self) -> None:
        self._socket.close()
