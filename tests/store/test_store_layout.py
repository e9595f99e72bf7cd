"""Formats on disk: what is packed can be parsed, and nothing else."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store.seeded_driver import SeededDriver
from store.simulated_disk import SimulatedDisk
from support.long_runs import often

from peacefs.datanode.store.layout import (
    FOOTER_BYTES,
    HEADER_BYTES,
    Record,
    RecordKind,
    StorePaths,
    chunk_file_bytes,
    pack_footer,
    pack_record,
    parse_chunk_file_name,
    parse_segment_file_name,
    record_bytes,
    sums_bytes,
    unpack_record,
    unpack_tail,
)
from peacefs.datanode.store.segment_scan import FoundRecord, SegmentScan
from peacefs.protocol.checksums import block_checksums
from peacefs.protocol.errors import ChecksumMismatch
from peacefs.protocol.limits import KIB, small_chunk_bytes_max
from peacefs.runtime import effects as fx

U32 = st.integers(0, 2**32 - 1)
U63 = st.integers(0, 2**63 - 1)
SALT = 0xCAFE


def test_sizes_are_what_the_module_draws() -> None:
    assert (HEADER_BYTES, FOOTER_BYTES) == (40, 44)
    assert [sums_bytes(length) for length in (0, 1, 64 * KIB, 64 * KIB + 1)] == [0, 4, 4, 8]
    assert record_bytes(1000) == 1044 and chunk_file_bytes(64 * KIB + 1) == 64 * KIB + 1 + 8 + 44


# -- names -------------------------------------------------------------------------------------------


@given(U63, U63, st.integers(0, 2**40))
def test_a_chunk_file_name_says_chunk_version_and_length(chunk: int, version: int, length: int) -> None:
    folder, name = StorePaths("/d").chunk_file(chunk, version, length).rsplit("/", 1)
    assert folder == f"/d/chunks/{chunk % 256:02x}"
    assert parse_chunk_file_name(name) == (chunk, version, length)


@given(U32, U32)
def test_a_segment_file_name_says_number_and_salt(number: int, salt: int) -> None:
    name = StorePaths("/d").segment_file(number, salt).rsplit("/", 1)[1]
    assert parse_segment_file_name(name) == (number, salt)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "-",
        "notes.txt",
        "1-2-3",
        "0000000000000001-0000000000000002",
        "0000000000000001-0000000000000002-03",
        "0000000000000001-0000000000000002-3-4",
        "000000000000000A-0000000000000002-3",
        "+000000000000001-0000000000000002-3",
        "00000001-00000002",
        "1-2.segment",
        "00000001-00000002.segment.segment",
        "00000001--0000002.segment",
    ],
)
def test_other_names_are_foreign(name: str) -> None:
    assert parse_chunk_file_name(name) is None
    assert parse_segment_file_name(name) is None


# -- footers -----------------------------------------------------------------------------------------


@given(U63, U63, st.binary(min_size=4, max_size=40).map(lambda raw: raw[: len(raw) // 4 * 4]), st.data())
def test_a_footer_stands_for_one_replica_and_survives_no_damage(
    chunk: int, version: int, sums: bytes, data: st.DataObject
) -> None:
    length = len(sums) // 4 * 64 * KIB
    tail = sums + pack_footer(chunk, version, length, sums)
    assert unpack_tail(tail, chunk, version, length) == sums
    bit = data.draw(st.integers(0, len(tail) * 8 - 1))
    damaged = bytearray(tail)
    damaged[bit // 8] ^= 1 << bit % 8
    others = [(tail, chunk + 1, version), (tail, chunk, version + 1), (tail[1:], chunk, version)]
    for wrong, of_chunk, of_version in [*others, (bytes(damaged), chunk, version), (tail + b"x", chunk, version)]:
        with pytest.raises(ChecksumMismatch):
            unpack_tail(wrong, of_chunk, of_version, length)


# -- records -----------------------------------------------------------------------------------------

RECORDS = st.builds(Record, st.sampled_from(RecordKind), U63, U63, st.integers(0, small_chunk_bytes_max), U32, U32)


@given(RECORDS, U32, st.integers(0, 20), st.data())
def test_a_record_is_parsed_where_it_begins_and_survives_no_damage(
    record: Record, salt: int, at: int, data: st.DataObject
) -> None:
    sums = data.draw(st.binary(min_size=sums_bytes(record.length), max_size=sums_bytes(record.length)))
    packed = pack_record(record, sums, salt)
    buffer = bytes(at) + packed + b"data"
    assert unpack_record(buffer, at, salt) == record
    assert unpack_record(buffer, at + 1, salt) is None
    assert unpack_record(buffer[: at + len(packed) - 1], at, salt) is None
    assert unpack_record(buffer, at, salt ^ 1) is None
    bit = data.draw(st.integers(0, len(packed) * 8 - 1))
    damaged = bytearray(buffer)
    damaged[at + bit // 8] ^= 1 << bit % 8
    assert unpack_record(damaged, at, salt) is None


@given(st.binary(max_size=200), st.integers(0, 200), U32)
def test_no_bytes_make_the_parser_fail(noise: bytes, at: int, salt: int) -> None:
    assert unpack_record(noise, at, salt) is None
    assert unpack_record(b"pfs1" + noise, 0, salt) is None


# -- scans -------------------------------------------------------------------------------------------


def scan(content: bytes, *, with_data: bool) -> tuple[SegmentScan, list[FoundRecord]]:
    disk = SimulatedDisk(Random(0))
    disk.overwrite("/segment", content)
    driver = SeededDriver(disk, Random(0))

    def steps() -> fx.Steps[tuple[SegmentScan, list[FoundRecord]]]:
        file = yield from fx.open_file("/segment")
        found: list[FoundRecord] = []
        pass_over = SegmentScan(file, len(content), SALT, with_data=with_data)
        while (window := (yield from pass_over.next_window())) is not None:
            found += window
        return pass_over, found

    return driver.run(steps())


def packed_chunk(number: int, data: bytes) -> bytes:
    sums = block_checksums(data)
    return pack_record(Record(RecordKind.CHUNK, number, 1, len(data)), sums, SALT) + data


LENGTHS = st.lists(
    st.one_of(st.integers(0, 300), st.integers(60 * KIB, 70 * KIB), st.just(small_chunk_bytes_max)),
    min_size=1,
    max_size=12,
)


@settings(max_examples=often(24, 60), deadline=None)
@given(LENGTHS, st.booleans(), st.integers(0, 1000), st.data())
def test_a_scan_finds_exactly_the_records_that_damage_spared(
    lengths: list[int], with_data: bool, seed: int, data: st.DataObject
) -> None:
    """Damage: a random range is overwritten, partly with misleading magic numbers."""
    random = Random(seed)
    records = [packed_chunk(number, random.randbytes(length)) for number, length in enumerate(lengths)]
    content = bytearray(b"".join(records))
    start = data.draw(st.integers(0, len(content) - 1))
    end = min(len(content), start + data.draw(st.sampled_from([1, 50, 5000, 200_000])))
    noise = random.choice([b"pfs1", b"pfs", b"\0"]) * (end - start)
    before = bytes(content[start:end])
    content[start:end] = noise[: end - start]
    if content[start:end] == before:
        return

    spared, at = [], 0
    for number, record in enumerate(records):
        header_end = at + len(record) - lengths[number]
        hit_until = at + len(record) if with_data else header_end
        differs = any(content[i] != record[i - at] for i in range(max(at, start), min(hit_until, end)))
        if not differs:
            spared.append(number)
        at += len(record)

    pass_over, found = scan(bytes(content), with_data=with_data)
    assert [each.record.chunk for each in found if each.intact] == spared
    assert pass_over.sound_end - pass_over.damaged_bytes == sum(len(records[number]) for number in spared)
    if with_data:
        for each in found:
            if each.intact:
                expected = records[each.record.chunk]
                assert expected.endswith(each.sums + each.data)


@settings(max_examples=often(16, 40), deadline=None)
@given(LENGTHS, st.data())
def test_a_scan_of_a_cut_segment_ends_at_the_last_whole_record(lengths: list[int], data: st.DataObject) -> None:
    records = [packed_chunk(number, bytes(length)) for number, length in enumerate(lengths)]
    content = b"".join(records)
    cut = data.draw(st.integers(0, len(content)))
    whole, end = 0, 0
    while whole < len(records) and end + len(records[whole]) <= cut:
        end += len(records[whole])
        whole += 1
    for with_data in (False, True):
        pass_over, found = scan(content[:cut], with_data=with_data)
        assert len(found) == whole
        assert (pass_over.sound_end, pass_over.torn_bytes, pass_over.damaged_bytes) == (end, cut - end, 0)
