"""Seals: authenticate the sender and the order of all data between two services.

After the handshake, the frames of each direction are sent as a sequence of records:

0   4      length of the data
4   n      data: a part of the stream of frames
4+n 16     AES-128-GMAC of the data (SP 800-38D) under the key of this direction; the nonce is the record's number

A record that was changed, repeated, left out, moved or taken from another connection fails verification, which
ends the connection. Sealed data is not encrypted; TLS, which replaces seals, encrypts it. No I/O.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from peacefs.protocol.limits import frame_ahead_bytes, sealed_record_bytes_max

from .checksums import Bytes
from .errors import BrokenSeal

_LENGTH = struct.Struct(">I")
LENGTH_BYTES: Final = _LENGTH.size
SEAL_BYTES: Final = 16
SEAL_KEY_BYTES: Final = 16
RECORD_BYTES_OVER: Final = LENGTH_BYTES + SEAL_BYTES
_NONCE = struct.Struct(">4xQ")


@dataclass(frozen=True)
class FrameKeys:
    """The keys of one end of a connection, unique to the connection."""

    sending: bytes
    receiving: bytes


class Sealer:
    """Seals what one end sends. Not thread-safe, because seals depend on the order of records."""

    def __init__(self, key: bytes) -> None:
        self._mac = AESGCM(key)
        self._number = 0

    def seal(self, head: Bytes, payload: Bytes = b"") -> list[Bytes]:
        """Return the records of a frame. A large payload is not copied; it must not change until it is sent."""
        if len(head) + len(payload) <= frame_ahead_bytes:
            body = b"".join((head, payload)) if len(payload) else head
            return [b"".join((_LENGTH.pack(len(body)), body, self._seal_of(body)))]
        # Join small parts between two large ones, because each part costs a system call.
        sealed: list[Bytes] = []
        between = b""
        for part in (memoryview(head), memoryview(payload)):
            for at in range(0, len(part), sealed_record_bytes_max):
                piece = part[at : at + sealed_record_bytes_max]
                between += _LENGTH.pack(len(piece))
                if len(piece) <= frame_ahead_bytes:
                    between += piece
                else:
                    sealed += (between, piece)
                    between = b""
                between += self._seal_of(piece)
        return [*sealed, between]

    def _seal_of(self, data: Bytes) -> bytes:
        nonce = _NONCE.pack(self._number)
        self._number += 1
        return self._mac.encrypt(nonce, b"", data)


def record_length(data: Bytes, at: int = 0) -> int:
    """Return the length of the data of the record at `at`. Raises BrokenSeal if it is over the limit."""
    length: int = _LENGTH.unpack_from(data, at)[0]
    if length > sealed_record_bytes_max:
        raise BrokenSeal("the received data is not sealed as agreed in the handshake")
    return length


class Opener:
    """Verifies the records of the other end, in order."""

    def __init__(self, key: bytes) -> None:
        self._mac = AESGCM(key)
        self._number = 0
        self._waiting = bytearray()

    def check(self, data: Bytes, seal: Bytes) -> None:
        """Verify the next record. Raises BrokenSeal if it is not the next one that the other end sent."""
        nonce = _NONCE.pack(self._number)
        self._number += 1
        try:
            self._mac.decrypt(nonce, seal, data)
        except InvalidTag:
            raise BrokenSeal("the received data was changed or reordered: its seal does not verify") from None

    def open(self, data: Bytes) -> Bytes:
        """Add received bytes and return the data of the complete records, for asyncio protocols."""
        view, at = memoryview(data), 0
        pieces: list[memoryview] = []
        if self._waiting:
            # Complete the first record alone, so that the other bytes are not copied.
            at = self._complete(view)
            record = memoryview(self._waiting)
            if len(record) < LENGTH_BYTES or len(record) < record_length(record) + RECORD_BYTES_OVER:
                return b""
            pieces.append(record[LENGTH_BYTES:-SEAL_BYTES])
            self._waiting = bytearray()
            self.check(pieces[0], record[-SEAL_BYTES:])
        while at + LENGTH_BYTES <= len(view):
            begin = at + LENGTH_BYTES
            end = begin + record_length(view, at)
            if end + SEAL_BYTES > len(view):
                break
            pieces.append(view[begin:end])
            self.check(pieces[-1], view[end : end + SEAL_BYTES])
            at = end + SEAL_BYTES
        if at < len(view):
            self._waiting = bytearray(view[at:])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _complete(self, view: memoryview) -> int:
        """Add to the waiting record what is missing, as far as it came; return the number of bytes."""
        taken = max(0, LENGTH_BYTES - len(self._waiting))
        self._waiting += view[:taken]
        if len(self._waiting) < LENGTH_BYTES:
            return len(view)
        missing = record_length(self._waiting) + RECORD_BYTES_OVER - len(self._waiting)
        self._waiting += view[taken : taken + missing]
        return min(taken + missing, len(view))
