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


class Prefix(NamedTuple):
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


def decode_prefix(data: Bytes, bytes_max: int = frame_bytes_max) -> Prefix:
    """Decode the start of a frame. Raises ProtocolViolation if it is none, or the frame exceeds a limit."""
    magic, form, _reserved, tag, message_bytes, payload_bytes = _PREFIX.unpack_from(data)
    if magic[:1] == _TLS_FIRST_BYTE:
        raise ProtocolViolation(
            "the peer speaks TLS and this service does not: use http:// (for Spark webhdfs://) and no TLS "
            "files, or start it with --tls-certificate, --tls-key and --tls-ca"
        )
    if magic != _MAGIC:
        raise ProtocolViolation("the peer does not speak the peacefs protocol")
    if form != _FORMAT:
        raise ProtocolViolation(f"the peer speaks frame format {form}, this service {_FORMAT}")
    is_over = message_bytes > frame_header_bytes_max or payload_bytes > frame_payload_bytes_max
    if is_over or message_bytes + payload_bytes > bytes_max:
        raise ProtocolViolation(f"a frame of {message_bytes} + {payload_bytes} bytes is over the limit")
    crc_of_prefix = crc32c(memoryview(data)[: _PREFIX.size])
    return Prefix(tag, message_bytes, payload_bytes, _CRC.unpack_from(data, _PREFIX.size)[0], crc_of_prefix)


def decode_message(prefix: Prefix, body: Bytes) -> Message:
    """Decode the message of a frame.

    Raises ProtocolViolation if it is damaged, or has an unknown tag or a field of the wrong type.
    """
    if crc32c(body, prefix.crc_of_prefix) != prefix.crc:
        raise ProtocolViolation("a frame arrived damaged")
    try:
        return _decoder.decode(body)
    except UNREADABLE as error:
        raise ProtocolViolation(f"a frame makes no sense: {error}") from None


class FrameReader:
    """Splits a byte stream into frames, for asyncio protocols."""

    def __init__(self, bytes_max: int = frame_bytes_max) -> None:
        #: Maximum frame size; may be changed between frames.
        self.bytes_max = bytes_max
        #: Verifies the seals of incoming data; None if the connection is not sealed.
        self.opener: Opener | None = None
        self._buffer = bytearray()
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
        self._buffer += data if self.opener is None else self.opener.open(data)

    @property
    def buffered_bytes(self) -> int:
        """Number of bytes added and not yet returned as frames."""
        return len(self._buffer)

    def next(self) -> Frame | None:
        """Return the next frame, or None if it is incomplete. Raises ProtocolViolation."""
        if self._prefix is None:
            if len(self._buffer) < PREFIX_BYTES:
                return None
            self._prefix = decode_prefix(self._buffer, self.bytes_max)
            del self._buffer[:PREFIX_BYTES]
        message_end = self._prefix.message_bytes
        frame_end = message_end + self._prefix.payload_bytes
        if len(self._buffer) < frame_end:
            return None
        prefix, self._prefix = self._prefix, None
        with memoryview(self._buffer) as view:
            message = decode_message(prefix, bytes(view[:message_end]))
            payload = bytes(view[message_end:frame_end])
        del self._buffer[:frame_end]
        return Frame(message, payload, prefix.tag)
