"""The format of an entry of the log. One entry is one commit.

An entry has two checksums: its own, and one that also covers the previous entry, the chain. So an older, exchanged
or missing entry breaks the chain. An entry after a damaged one can still be verified by its own checksum. That
checksum is seeded with a secret of the segment, so that data stored by users is never mistaken for an entry.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

import msgspec
from xxhash import xxh3_64_digest, xxh3_64_intdigest

from peacefs.coordinator.metadata.tables import Row

#: The first bytes of each entry.
MARK: Final = b"pfL1"
#: The mark, the length of the content, the entry's number, its own checksum, and its checksum in the chain.
_HEAD: Final = struct.Struct(">4sIQQQ")
HEAD_BYTES: Final = _HEAD.size
#: The alignment of entries in bytes.
ALIGNMENT: Final = 8
#: The version of `Content`. Lower numbers are schema versions of releases whose entries are SQL statements.
FORMAT: Final = 18


class Content(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The content of an entry: the changes of a commit, in order.

    A change is either a table number with a row to put there, or the complement of a table number with the key of
    a row to delete. `format` and `reserved` replace the versions in entries of earlier releases.
    """

    format: int
    reserved: int
    #: The last transaction of the commit, and the coordinator's epoch.
    tx: int
    epoch: int
    changes: list[tuple[int, Row]]


class LogEntry(NamedTuple):
    """A verified entry that was read. `chain` is its checksum in the chain."""

    number: int
    chain: int
    content: bytes


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[int, int, int, int, list[tuple[int, tuple[Any, ...]]]])


def encode_content(tx: int, epoch: int, changes: list[tuple[int, Row]]) -> bytes:
    return _encoder.encode((FORMAT, 0, tx, epoch, changes))


def decode_content(content: bytes) -> Content:
    """Decode an entry. Raises msgspec.ValidationError, msgspec.DecodeError."""
    return Content(*_decoder.decode(content))


def format_of(content: bytes) -> int:
    """Return the format version of an entry. Raises msgspec.ValidationError, msgspec.DecodeError."""
    return msgspec.msgpack.decode(content, type=tuple[int, int, Any, Any, Any])[0]


def checksum_of(content: bytes) -> bytes:
    """Return the checksum by which the next journal entry refers to this one, and so to all earlier ones."""
    return xxh3_64_digest(content)


def pack(number: int, chain: int, content: bytes, secret: int) -> tuple[bytes, int]:
    """Return the padded bytes of an entry, and its checksum in the chain.

    `chain` is the checksum of the previous entry in the chain.
    """
    own = xxh3_64_digest(content, secret ^ number)
    after = _chained(chain, number, own)
    head = _HEAD.pack(MARK, len(content), number, int.from_bytes(own, "big"), after)
    return head + content + bytes(-(len(head) + len(content)) % ALIGNMENT), after


def unpack(data: memoryview, at: int, number: int, chain: int, secret: int) -> LogEntry | None:
    """Return the entry at an offset if it is intact, has this number, and follows `chain`; otherwise None."""
    found = unpack_alone(data, at, secret)
    if found is None or found.number != number:
        return None
    own = xxh3_64_digest(found.content, secret ^ number)
    return found if found.chain == _chained(chain, number, own) else None


def unpack_alone(data: memoryview, at: int, secret: int) -> LogEntry | None:
    """Return the entry at an offset if its own checksum is right, whatever it follows; otherwise None."""
    if len(data) - at < HEAD_BYTES:
        return None
    mark, length, number, own, chain = _HEAD.unpack_from(data, at)
    begin = at + HEAD_BYTES
    if mark != MARK or length > len(data) - begin:
        return None
    content = bytes(data[begin : begin + length])
    return LogEntry(number, chain, content) if xxh3_64_intdigest(content, secret ^ number) == own else None


def size_of(content: bytes) -> int:
    """Return the size in bytes of an entry with this content, including padding."""
    taken = HEAD_BYTES + len(content)
    return taken + -taken % ALIGNMENT


def _chained(chain: int, number: int, own: bytes) -> int:
    return xxh3_64_intdigest(chain.to_bytes(8, "big") + number.to_bytes(8, "big") + own)
