"""Encode messages into frames and decode them. No I/O.

0   2  magic "pf"
2   1  format, 1
3   1  reserved, 0
4   4  tag: correlates a reply with its request; 0 if the order of frames is enough
8   4  length of the message
12  4  length of the payload
16  4  CRC32C of bytes 0 to 15 and of the message
20     message (MessagePack), then payload (raw bytes with separate checksums)
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import msgspec
from crc32c import crc32c

from peacefs.protocol.limits import MIB

from .checksums import Bytes
from .decoding import UNREADABLE
from .errors import ProtocolViolation
from .messages import AnyMessage, Message
from .seals import Opener

# A message between a client or gateway and the coordinator may list all chunks of a file. Messages on the data
# path are small.
frame_header_bytes_max: Final = 16 * MIB
frame_payload_bytes_max: Final = 4 * MIB


_PREFIX = struct.Struct(">2sBBIII")
_CRC = struct.Struct(">I")
_WHOLE_PREFIX = struct.Struct(">2sBBIIII")
PREFIX_BYTES = _PREFIX.size + _CRC.size
frame_bytes_max: Final = frame_header_bytes_max + frame_payload_bytes_max
_MAGIC = b"pf"
#: Distinguishes frames from HTTP on a shared port: no HTTP method begins with this byte.
FIRST_BYTE = _MAGIC[:1]
_FORMAT = 1
# The first byte of a TLS handshake.
_TLS_FIRST_BYTE = b"\x16"

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AnyMessage] = msgspec.msgpack.Decoder(AnyMessage)


class Frame(NamedTuple):
    """A message with its payload. A payload received from a connection is valid until its next receive."""

    message: Message
    payload: Bytes = b""
    tag: int = 0
    #: Number of payload bytes that are still to be received.
    unread: int = 0


class Prefix(msgspec.Struct, frozen=True, gc=False):
    """The content of a frame's first 20 bytes."""

    tag: int
    message_bytes: int
    payload_bytes: int
    crc: int
    crc_of_prefix: int


def encode(message: Message, payload_bytes: int = 0, tag: int = 0) -> bytes:
    """Encode everything of a frame except the payload."""
    body = _encoder.encode(message)
    assert len(body) <= frame_header_bytes_max, f"{type(message).__name__} of {len(body)} bytes"
    assert payload_bytes <= frame_payload_bytes_max, f"payload of {payload_bytes} bytes"
    prefix = _PREFIX.pack(_MAGIC, _FORMAT, 0, tag, len(body), payload_bytes)
    return b"".join((prefix, _CRC.pack(crc32c(body, crc32c(prefix))), body))


def decode_prefix(data: Bytes, bytes_max: int = frame_bytes_max, at: int = 0) -> Prefix:
    """Decode the start of the frame that begins at `at`.

    Raises ProtocolViolation if no frame begins there, or if the frame exceeds a limit.
    """
    magic, form, _reserved, tag, message_bytes, payload_bytes, crc = _WHOLE_PREFIX.unpack_from(data, at)
    if magic != _MAGIC or form != _FORMAT:
        raise _not_a_frame(magic, form)
    if message_bytes + payload_bytes > bytes_max or not _is_within_limits(message_bytes, payload_bytes):
        raise ProtocolViolation(f"a frame of {message_bytes} + {payload_bytes} bytes is over the limit")
    return Prefix(tag, message_bytes, payload_bytes, crc, crc32c(data[at : at + _PREFIX.size]))


def _is_within_limits(message_bytes: int, payload_bytes: int) -> bool:
    return message_bytes <= frame_header_bytes_max and payload_bytes <= frame_payload_bytes_max


def _not_a_frame(magic: bytes, form: int) -> ProtocolViolation:
    if magic[:1] == _TLS_FIRST_BYTE:
        return ProtocolViolation(
            "the peer speaks TLS and this service does not: use http:// (for Spark webhdfs://) and no TLS "
            "files, or start it with --tls-certificate, --tls-key and --tls-ca"
        )
    if magic != _MAGIC:
        return ProtocolViolation("the peer does not speak the peacefs protocol")
    return ProtocolViolation(f"the peer speaks frame format {form}, this service {_FORMAT}")


def decode_message(prefix: Prefix, body: Bytes) -> Message:
    """Decode the message of a frame.

    Raises ProtocolViolation if it is damaged, or has an unknown tag or a field of the wrong type.
    """
    if crc32c(body, prefix.crc_of_prefix) != prefix.crc:
        raise ProtocolViolation("a frame arrived damaged")
    try:
        return _decoder.decode(body)
    except UNREADABLE as error:
        raise ProtocolViolation(f"a frame cannot be decoded: {error}") from None


class FrameReader:
    """Splits a byte stream into frames, for asyncio protocols. Complete frames are not copied into a buffer."""

    def __init__(self, bytes_max: int = frame_bytes_max) -> None:
        #: Maximum frame size; may be changed between frames.
        self.bytes_max = bytes_max
        #: Verifies the seals of incoming data; None if the connection is not sealed.
        self.opener: Opener | None = None
        self._data: bytes | bytearray = b""
        #: Offset of the first byte that was not returned as part of a frame, nor decoded as a prefix.
        self._at = 0
        #: The decoded prefix of the next frame while the rest of the frame is incomplete.
        self._prefix: Prefix | None = None

    def feed(self, data: Bytes) -> list[Frame]:
        """Add received bytes and return the frames that are complete. Raises ProtocolViolation."""
        self.take(data)
        frames = []
        while (frame := self.next()) is not None:
            frames.append(frame)
        return frames

    def take(self, data: Bytes) -> None:
        """Add received bytes. Raises ProtocolViolation if their seal is wrong."""
        if self.opener is not None:
            data = self.opener.open(data)
        if self._at == len(self._data):
            self._data, self._at = data if isinstance(data, bytes) else bytes(data), 0
            return
        if isinstance(self._data, bytes):
            self._data = bytearray(memoryview(self._data)[self._at :])
        else:
            del self._data[: self._at]
        self._data += data
        self._at = 0

    @property
    def buffered_bytes(self) -> int:
        """Number of bytes added and not yet returned as frames."""
        return len(self._data) - self._at

    def next(self) -> Frame | None:
        """Return the next frame, or None if it is incomplete. Raises ProtocolViolation."""
        data, at, prefix = self._data, self._at, self._prefix
        if prefix is None:
            if len(data) - at < PREFIX_BYTES:
                return None
            prefix = decode_prefix(data, self.bytes_max, at)
            at += PREFIX_BYTES
        message_end = at + prefix.message_bytes
        frame_end = message_end + prefix.payload_bytes
        if len(data) < frame_end:
            self._prefix, self._at = prefix, at
            return None
        self._prefix = None
        if frame_end == len(data):
            self._data, self._at = b"", 0
        else:
            self._at = frame_end
        body = data[at:message_end]
        payload = bytes(data[message_end:frame_end]) if prefix.payload_bytes else b""
        return Frame(decode_message(prefix, body), payload, prefix.tag)
