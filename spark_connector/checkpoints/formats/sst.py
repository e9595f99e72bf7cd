"""Verify SST files of RocksDB: the checksum of every block. Nothing of their keys is read.

A file of block-based tables is blocks, each followed by a byte for its compression and a checksum of both, and a
footer. The footer leads to the block of meta blocks and to the index, the index to the blocks of data. Formats 0
to 6 are read; from 6 on checksums depend on where a block lies, and the footer has one too. RocksDB has no library
that verifies a file alone; its `table/format.cc` and `block_builder.cc` are where the format is defined.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

import crc32c
import xxhash

from peacefs.protocol.errors import CheckpointDamaged

from .codecs import CannotUnpack, unpack_snappy_block
from .lz4_stream import decompress_block

MAGIC = bytes.fromhex("f7cff485b741e288")
_LEGACY_MAGIC = bytes.fromhex("57fb808b247547db")
_LEGACY_FOOTER_BYTES = 48
_FOOTER_BYTES = 53
_TRAILER_BYTES = 5
_EXTENDED_MAGIC = bytes.fromhex("3e007a00")
_NEWEST_FORMAT = 6
_BLOCK_BYTES_MAX = 1 << 30
_MASK = 0xFFFFFFFF
_CRC_MASK_DELTA = 0xA282EAD8
_LAST_BYTE_PRIME = 0x6B9083D9
_NO_CHECKSUM, _CRC32C, _XXHASH32, _XXHASH64, _XXH3 = range(5)
_PLAIN, _SNAPPY, _LZ4, _LZ4HC = 0, 1, 4, 5
_BINARY_SEARCH, _HASH_SEARCH, _TWO_LEVEL = 0, 1, 2
_INDEX, _PROPERTIES = b"rocksdb.index", b"rocksdb.properties"
_INDEX_TYPE = b"rocksdb.block.based.table.index.type"
_DELTA_VALUES = b"rocksdb.index.value.is.delta.encoded"
_PARTITIONED_FILTER = b"partitionedfilter."


@dataclass(frozen=True, slots=True)
class TableCheck:
    """The result for a table: what is wrong with its data, and what could not be verified; empty if nothing."""

    fault: str = ""
    unverified: str = ""


class _Handle(NamedTuple):
    """The place of a block; its trailer is not counted."""

    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class _Footer:
    checksum: int
    metaindex: _Handle
    index: _Handle | None
    version: int
    base: int
    offset: int


class _Unknown(Exception):
    """A part of the format that this program does not know. The text says which."""


def check_table(source: BinaryIO, length: int) -> TableCheck:
    """Read a table of `length` bytes from a file that can be sought in.

    Raises CheckpointDamaged for what RocksDB notices when it opens the table: footer, index, meta blocks. Damage
    to data, which it notices when it reads them, is in the result.
    """
    return _Table(source, length).check()


class _Table:
    """Verify one table of RocksDB, block by block; made by `check_table` for one file.

    A block counts as verified only when its checksum matches. Blocks are read one at a time, whatever the table's
    length.
    """

    def __init__(self, source: BinaryIO, length: int) -> None:
        self._source = source
        self._length = length
        self._footer = self._read_footer()
        self._verified = length - self._footer.offset

    def check(self) -> TableCheck:
        if self._footer.version > _NEWEST_FORMAT:
            return TableCheck(
                unverified=f"a table of format {self._footer.version} that this program does not know"
            )
        if self._footer.checksum > _XXH3:
            raise CheckpointDamaged("its footer names a checksum that there is not")
        if self._footer.checksum == _NO_CHECKSUM:
            return TableCheck(unverified="its blocks have no checksums")
        meta = dict(_entries(self._block(self._footer.metaindex)))
        handles = {name: _handle(value, 0)[0] for name, value in meta.items()}
        properties: dict[bytes, bytes] = {}
        for name, handle in sorted(handles.items(), key=lambda each: each[1]):
            if name == _INDEX:
                continue
            raw = self._raw(handle)
            if name == _PROPERTIES:
                properties = dict(_entries(_unpacked(raw)))
        try:
            data = sorted(self._data_handles(self._footer.index or handles.get(_INDEX), properties))
        except _Unknown as unknown:
            return TableCheck(unverified=str(unknown))
        for handle in data:
            try:
                self._raw(handle)
            except CheckpointDamaged as damaged:
                return TableCheck(fault=damaged.message)
        rest = self._length - self._verified
        partitioned = any(name.startswith(_PARTITIONED_FILTER) for name in meta)
        if rest and not partitioned:
            return TableCheck(unverified=f"{rest} bytes belong to no block that was found")
        return TableCheck(unverified="its filter has partitions, which are not verified" if rest else "")

    def _read_footer(self) -> _Footer:
        if self._length < _LEGACY_FOOTER_BYTES:
            raise CheckpointDamaged(
                f"{self._length} bytes are fewer than a table has" if self._length else "empty"
            )
        at = max(0, self._length - _FOOTER_BYTES)
        tail = self._at(at, self._length - at)
        if tail.endswith(_LEGACY_MAGIC):
            metaindex, position = _handle(tail[-_LEGACY_FOOTER_BYTES:], 0)
            index, _ = _handle(tail[-_LEGACY_FOOTER_BYTES:], position)
            return _Footer(_CRC32C, metaindex, index, 0, 0, self._length - _LEGACY_FOOTER_BYTES)
        if not tail.endswith(MAGIC) or len(tail) < _FOOTER_BYTES:
            raise CheckpointDamaged("it does not end as such a file does: cut short or damaged")
        checksum, version = tail[0], int.from_bytes(tail[41:45], "little")
        if version > _NEWEST_FORMAT:
            return _Footer(checksum, _Handle(0, 0), None, version, 0, at)
        if version < _NEWEST_FORMAT:
            metaindex, position = _handle(tail, 1)
            index, _ = _handle(tail, position)
            return _Footer(checksum, metaindex, index, version, 0, at)
        magic, own, base, size = struct.unpack_from("<4sIII", tail, 1)
        blank = tail[:5] + bytes(4) + tail[9:]
        if magic != _EXTENDED_MAGIC or own != (_checksum(checksum, blank) + _modifier(base, at)) & _MASK:
            raise CheckpointDamaged("its footer does not match its checksum")
        return _Footer(checksum, _Handle(at - size - _TRAILER_BYTES, size), None, version, base, at)

    def _data_handles(self, index: _Handle | None, properties: dict[bytes, bytes]) -> Iterator[_Handle]:
        if index is None:
            raise CheckpointDamaged("it has no index")
        kind = int.from_bytes(properties.get(_INDEX_TYPE, bytes(4)), "little")
        if kind not in (_BINARY_SEARCH, _HASH_SEARCH, _TWO_LEVEL):
            raise _Unknown(f"its index is of kind {kind}, which this program does not know")
        delta = _varint(properties.get(_DELTA_VALUES, b"\x00"), 0)[0] == 1
        first = _index_handles(self._block(index), delta=delta)
        if kind != _TWO_LEVEL:
            yield from first
            return
        for partition in first:
            yield from _index_handles(self._block(partition), delta=delta)

    def _block(self, handle: _Handle) -> bytes:
        return _unpacked(self._raw(handle))

    def _raw(self, handle: _Handle) -> bytes:
        """Return a verified block with the byte for its compression."""
        if (
            handle.size > _BLOCK_BYTES_MAX
            or handle.offset < 0
            or handle.offset + handle.size > self._footer.offset
        ):
            raise CheckpointDamaged("it names a block that lies beyond its end")
        data = self._at(handle.offset, handle.size + _TRAILER_BYTES)
        wanted = int.from_bytes(data[-4:], "little")
        found = _checksum(self._footer.checksum, data[:-4]) + _modifier(self._footer.base, handle.offset)
        if len(data) != handle.size + _TRAILER_BYTES or found & _MASK != wanted:
            raise CheckpointDamaged(f"the block at byte {handle.offset} does not match its checksum")
        self._verified += len(data)
        return data[:-4]

    def _at(self, offset: int, size: int) -> bytes:
        self._source.seek(offset)
        return self._source.read(size)


def _checksum(kind: int, data: bytes) -> int:
    """Return the checksum of a block's contents and the byte behind them."""
    if kind == _CRC32C:
        value = crc32c.crc32c(data)
        return ((value >> 15 | value << 17) + _CRC_MASK_DELTA) & _MASK
    if kind == _XXHASH32:
        return xxhash.xxh32_intdigest(data)
    if kind == _XXHASH64:
        return xxhash.xxh64_intdigest(data) & _MASK
    return (xxhash.xxh3_64_intdigest(data[:-1]) & _MASK) ^ (data[-1] * _LAST_BYTE_PRIME & _MASK)


def _modifier(base: int, offset: int) -> int:
    """Return how a block's place changes its checksum, from format 6 on."""
    return base ^ ((offset & _MASK) + (offset >> 32)) & _MASK if base else 0


def _unpacked(raw: bytes) -> bytes:
    compression, data = raw[-1], raw[:-1]
    if compression == _PLAIN:
        return data
    if compression in (_LZ4, _LZ4HC):
        length, position = _varint(data, 0)
        return decompress_block(data[position:], length)
    if compression == _SNAPPY:
        try:
            return unpack_snappy_block(data)
        except CannotUnpack as unable:
            raise _Unknown(f"its index is {unable}") from None
    raise _Unknown(f"its index is packed with a codec (number {compression}) that this program does not unpack")


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a block; keys repeat what they share with the one before."""
    end = _end_of_entries(block)
    position, key = 0, b""
    while position < end:
        shared, position = _varint(block, position)
        own, position = _varint(block, position)
        size, position = _varint(block, position)
        if shared > len(key) or position + own + size > end:
            raise CheckpointDamaged("a block of it cannot be read")
        key = key[:shared] + block[position : position + own]
        position += own
        yield key, block[position : position + size]
        position += size


def _index_handles(block: bytes, *, delta: bool) -> Iterator[_Handle]:
    """Return the blocks that an index names. With `delta`, handles may be differences to the one before."""
    if not delta:
        for _, value in _entries(block):
            yield _handle(value, 0)[0]
        return
    end = _end_of_entries(block)
    position, last = 0, _Handle(0, 0)
    while position < end:
        shared, position = _varint(block, position)
        own, position = _varint(block, position)
        position += own
        if shared == 0:
            last, position = _handle(block, position)
        else:
            change, position = _varint(block, position)
            signed = (change >> 1) ^ -(change & 1)
            last = _Handle(last.offset + last.size + _TRAILER_BYTES, last.size + signed)
        yield last


def _end_of_entries(block: bytes) -> int:
    """Restart points follow the entries, and their number is last."""
    restarts = int.from_bytes(block[-4:], "little") & 0x7FFFFFFF
    end = len(block) - 4 * (restarts + 1)
    if len(block) < 4 or end < 0:
        raise CheckpointDamaged("a block of it cannot be read")
    return end


def _handle(data: bytes, position: int) -> tuple[_Handle, int]:
    offset, position = _varint(data, position)
    size, position = _varint(data, position)
    return _Handle(offset, size), position


def _varint(data: bytes, position: int) -> tuple[int, int]:
    number = 0
    for place, byte in enumerate(data[position : position + 10]):
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number, position + place + 1
    raise CheckpointDamaged("a number in it is cut short")
