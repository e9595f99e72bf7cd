"""One entry of the log, which is one commit: its numbers, its changes, and the checksum that chains it.

The checksum of an entry covers the checksum of the one before it and its own bytes. So an entry that is put back,
exchanged or left out breaks the chain, and what follows a damaged entry is known to follow it.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

import msgspec
from xxhash import xxh3_64_digest, xxh3_64_intdigest

from peacefs.coordinator.metadata.tables import Row

#: The bytes with which each entry begins.
MARK: Final = b"pfL1"
#: The mark, the bytes of the content, the entry's number, its own checksum, and that of the chain.
_HEAD: Final = struct.Struct(">4sIQQQ")
HEAD_BYTES: Final = _HEAD.size
#: Entries begin at multiples of this.
ALIGNMENT: Final = 8
#: The version of `Content`; the schemas of the releases whose entries are statements of SQL are below.
FORMAT: Final = 18


class Content(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The content of an entry: the changes of a commit in the order in which they were made.

    A change is the number of a table and a row to put there, or the number's complement and the key of a row to
    delete. `format` and `reserved` stand where entries of earlier releases have their versions.
    """

    format: int
    reserved: int
    #: The last transaction of the commit, and the coordinator's epoch.
    tx: int
    epoch: int
    changes: list[tuple[int, Row]]


class LogEntry(NamedTuple):
    """An entry that was read, and found to follow the one before it."""

    number: int
    chain: int
    content: bytes


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[int, int, int, int, list[tuple[int, tuple[Any, ...]]]])


def encode_content(tx: int, epoch: int, changes: list[tuple[int, Row]]) -> bytes:
    return _encoder.encode((FORMAT, 0, tx, epoch, changes))


def decode_content(content: bytes) -> Content:
    """Raises msgspec.ValidationError, msgspec.DecodeError."""
    return Content(*_decoder.decode(content))


def format_of(content: bytes) -> int:
    """Return the version of an entry. Raises msgspec.ValidationError, msgspec.DecodeError."""
    return msgspec.msgpack.decode(content, type=tuple[int, int, Any, Any, Any])[0]


def pack(number: int, chain: int, content: bytes) -> tuple[bytes, int]:
    """Return the bytes of an entry, padded, and its place in the chain; `chain` is that of the entry before."""
    own = xxh3_64_digest(content, number & 0xFFFFFFFF)
    after = _chained(chain, number, own)
    head = _HEAD.pack(MARK, len(content), number, int.from_bytes(own, "big"), after)
    return head + content + bytes(-(len(head) + len(content)) % ALIGNMENT), after


def unpack(data: memoryview, at: int, number: int, chain: int) -> LogEntry | None:
    """Return the entry at a place if it is sound and is the one of that number that follows in the chain."""
    found = unpack_alone(data, at)
    if found is None or found.number != number:
        return None
    own = xxh3_64_digest(found.content, number & 0xFFFFFFFF)
    return found if found.chain == _chained(chain, number, own) else None


def unpack_alone(data: memoryview, at: int) -> LogEntry | None:
    """Return the entry at a place if it is sound by itself, whatever it follows."""
    if len(data) - at < HEAD_BYTES:
        return None
    mark, length, number, own, chain = _HEAD.unpack_from(data, at)
    begin = at + HEAD_BYTES
    if mark != MARK or length > len(data) - begin:
        return None
    content = bytes(data[begin : begin + length])
    return LogEntry(number, chain, content) if xxh3_64_intdigest(content, number & 0xFFFFFFFF) == own else None


def size_of(entry: LogEntry) -> int:
    """Return how many bytes an entry takes, its padding included."""
    taken = HEAD_BYTES + len(entry.content)
    return taken + -taken % ALIGNMENT


def _chained(chain: int, number: int, own: bytes) -> int:
    return xxh3_64_intdigest(chain.to_bytes(8, "big") + number.to_bytes(8, "big") + own)
