"""Reads replicas: whole blocks, each verified against its stored checksum if it is used here.

For a reader over the network, the blocks of a file are sent unverified, with their stored checksums. That reader
verifies them (`client/transfer/chunk_reader.py`) and reports errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from peacefs.protocol.checksums import sums_between, verify_blocks
from peacefs.protocol.errors import BadRequest, ChecksumMismatch, ChunkError, ChunkNotFound, StaleVersion
from peacefs.protocol.ids import ChunkId, Version, show
from peacefs.protocol.limits import checksum_block_bytes, packet_bytes, read_packet_bytes
from peacefs.protocol.messages import Packet
from peacefs.runtime import effects as fx

from .chunk_index import ChunkIndex, IndexedPlace
from .disk_faults import close_quietly, named_fault
from .large_chunks import LargeChunks
from .layout import describe
from .readahead import ReadingAhead
from .segments import Segment, Segments

# A reader whose replica is gone looks again, because the replica may have been moved or replaced by a newer
# version.
_LOOKS_MAX = 4


class Blocks(NamedTuple):
    """A verified part of a chunk. `offset` is a multiple of the checksum block size."""

    offset: int
    sums: bytes
    data: bytes


class WantedRange(NamedTuple):
    """A range of a replica of at least `version`, as a reader requests it."""

    chunk: ChunkId
    version: Version
    offset: int
    length: int


@dataclass(slots=True, eq=False)
class ReadPlan:
    """An open replica, and the range of blocks still to be read. `length` is that of the whole chunk."""

    chunk: ChunkId
    version: Version
    length: int
    sums: bytes
    at: int
    end: int
    #: The data of a small chunk, or the open file of a large one; both None once the plan is closed.
    data: bytes | None
    file: fx.File | None
    ahead: ReadingAhead = field(default_factory=ReadingAhead)


class ReplicaReader:
    """Opens and reads the replicas in the index, for `ChunkStore`. Thread-safe; a plan belongs to one participant.

    A plan is closed after its last block and after an error of the disk or of a checksum.
    """

    def __init__(self, index: ChunkIndex, large: LargeChunks, segments: Segments) -> None:
        self._index = index
        self._large = large
        self._segments = segments

    def open(self, chunk: ChunkId, version: Version, offset: int, length: int) -> fx.Steps[ReadPlan]:
        if offset < 0 or length < 0:
            raise BadRequest(f"cannot read {length} bytes at {offset}")
        for _look in range(_LOOKS_MAX):
            place = self._find(chunk, version)
            try:
                return (yield from self._open(chunk, place, offset, length))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise named_fault(error, f"cannot open {describe(chunk, place.version)}") from None
        owner = self._large if place.has_own_file else self._segments
        owner.lose(chunk, place)
        raise ChunkNotFound(f"the file of {describe(chunk, place.version)} has vanished")

    def read_small(self, wanted: Sequence[WantedRange]) -> fx.Steps[list[Blocks | None]]:
        found: list[Blocks | None] = [None] * len(wanted)
        parts: list[fx.Part] = []
        read: list[tuple[int, Segment, IndexedPlace]] = []
        for number, (chunk, version, _offset, _length) in enumerate(wanted):
            place = self._index.find(chunk)
            if place is None or place.version < version or place.has_own_file:
                continue
            segment = self._segments.find(place)
            if segment is not None:
                parts.append(segment.part(place))
                read.append((number, segment, place))
        if parts:
            came = yield from fx.read_from_memory(parts)
            for (number, segment, place), raw in zip(read, came, strict=True):
                if raw is not None:
                    found[number] = _cut_out(wanted[number], segment, place, raw)
        return found

    def _find(self, chunk: ChunkId, version: Version) -> IndexedPlace:
        place = self._index.find(chunk)
        if place is None:
            raise ChunkNotFound(f"chunk {show(chunk)} is not here")
        if place.version < version:
            raise StaleVersion(f"{describe(chunk, version)} is wanted, version {show(place.version)} is here")
        return place

    def _open(self, chunk: ChunkId, place: IndexedPlace, offset: int, length: int) -> fx.Steps[ReadPlan]:
        data, file = None, None
        if place.has_own_file:
            file, sums = yield from self._large.open(chunk, place)
        else:
            sums, data = yield from self._segments.read(chunk, place)
        is_empty = length == 0 or offset >= place.length
        at = 0 if is_empty else offset // checksum_block_bytes * checksum_block_bytes
        end = 0 if is_empty else min(_round_up(offset + length), place.length)
        plan = ReadPlan(chunk, place.version, place.length, sums, at, end, data, file)
        if plan.at >= plan.end:
            yield from self.close(plan)
        return plan

    def read_blocks(self, plan: ReadPlan, bytes_max: int = packet_bytes) -> fx.Steps[Blocks | None]:
        if plan.at >= plan.end:
            return None
        try:
            blocks = yield from self._read_blocks(plan, bytes_max)
        except OSError as error:
            yield from self.close(plan)
            raise named_fault(error, f"cannot read {describe(plan.chunk, plan.version)}") from None
        except ChunkError:
            yield from self.close(plan)
            raise
        plan.at += len(blocks.data)
        if plan.at >= plan.end:
            yield from self.close(plan)
        return blocks

    def send_blocks(self, plan: ReadPlan, reader: fx.Connection, *, timeout_s: float) -> fx.Steps[int | None]:
        if plan.file is None:
            return (yield from self._send_verified(plan, reader, timeout_s))
        end, sums = _next_blocks(plan, read_packet_bytes)
        length = end - plan.at
        packet = Packet(plan.at, sums, last=end == plan.end)
        try:
            yield from self._read_ahead(plan.file, plan)
            yield from fx.send_file(reader, packet, plan.file, plan.at, length, timeout_s=timeout_s)
        except OSError as error:
            # In the middle of a frame, closing the connection is the only way to tell the reader about the error.
            yield from fx.close(reader)
            yield from self.close(plan)
            raise named_fault(error, f"cannot read {describe(plan.chunk, plan.version)}") from None
        plan.at = end
        if plan.at >= plan.end:
            yield from self.close(plan)
        return length

    def _send_verified(self, plan: ReadPlan, reader: fx.Connection, timeout_s: float) -> fx.Steps[int | None]:
        blocks = yield from self.read_blocks(plan)
        if blocks is None:
            return None
        packet = Packet(blocks.offset, blocks.sums, last=plan.at == plan.end)
        yield from fx.send(reader, packet, blocks.data, timeout_s=timeout_s)
        return len(blocks.data)

    def _read_blocks(self, plan: ReadPlan, bytes_max: int) -> fx.Steps[Blocks]:
        end, sums = _next_blocks(plan, bytes_max)
        if plan.file is not None:
            yield from self._read_ahead(plan.file, plan)
            data = yield from fx.read_at(plan.file, plan.at, end - plan.at)
        else:
            assert plan.data is not None
            data = plan.data[plan.at : end]
        verify_blocks(data, sums, lambda: f"{describe(plan.chunk, plan.version)} from {plan.at}")
        return Blocks(plan.at, sums, data)

    def _read_ahead(self, file: fx.File, plan: ReadPlan) -> fx.Steps[None]:
        if due := plan.ahead.due(plan.at, plan.end):
            yield from fx.read_ahead(file, *due)

    def close(self, plan: ReadPlan) -> fx.Steps[None]:
        file, plan.file, plan.data = plan.file, None, None
        plan.at = plan.end
        if file is not None:
            yield from close_quietly(file)


def _next_blocks(plan: ReadPlan, bytes_max: int) -> tuple[int, bytes]:
    """Return the end of the next blocks, at most `bytes_max` bytes, and their checksums."""
    end = min(plan.at + bytes_max, plan.end)
    return end, sums_between(plan.sums, plan.at, end)


def _round_up(offset: int) -> int:
    return -(-offset // checksum_block_bytes) * checksum_block_bytes


def _cut_out(wanted: WantedRange, segment: Segment, place: IndexedPlace, raw: bytes) -> Blocks | None:
    """Return the verified blocks of a range of a record; None if the range is empty or the record damaged."""
    if not (0 <= wanted.offset < place.length and wanted.length > 0):
        return None
    at = wanted.offset // checksum_block_bytes * checksum_block_bytes
    end = min(_round_up(wanted.offset + wanted.length), place.length)
    try:
        sums, data = segment.unpack(wanted.chunk, place, raw)
        blocks = Blocks(at, sums_between(sums, at, end), data[at:end])
        verify_blocks(blocks.data, blocks.sums, "")
    except ChecksumMismatch:
        return None
    return blocks
