"""What the chunk store promises to writers and readers, on a real disk and on the simulated one alike."""

from __future__ import annotations

from random import Random

import pytest
from store.machine import Machine, read_chunk

from peacefs.protocol.checksums import block_checksums, chunk_checksum
from peacefs.protocol.errors import (
    BadRequest,
    ChecksumMismatch,
    ChunkError,
    ChunkNotFound,
    DiskFull,
    StaleVersion,
)
from peacefs.protocol.limits import KIB, MIB, small_chunk_bytes_max
from peacefs.protocol.messages import Replica

BLOCK = 64 * KIB
CHUNK = 0x10000000001
LENGTHS = [
    0,
    1,
    1000,
    BLOCK - 1,
    BLOCK,
    BLOCK + 1,
    small_chunk_bytes_max - 1,
    small_chunk_bytes_max,
    small_chunk_bytes_max + 1,
    MIB,
    2 * MIB + 77,
]


def data_of(length: int, seed: int = 0) -> bytes:
    return Random(seed).randbytes(length)


@pytest.fixture(params=[5000, small_chunk_bytes_max + 5000], ids=["small", "large"])
def content(request: pytest.FixtureRequest) -> bytes:
    """A chunk that goes into a segment, and one that gets a file."""
    return data_of(request.param)


# -- writing and reading -----------------------------------------------------------------------------


@pytest.mark.parametrize("length", LENGTHS)
def test_what_was_sealed_is_read_back_and_survives_a_restart(machine: Machine, length: int) -> None:
    data = data_of(length)
    sealed = machine.put(CHUNK, 5, data)
    assert sealed == (length, chunk_checksum(block_checksums(data)))
    assert machine.get(CHUNK, 5) == data
    machine.start()
    assert machine.recovery.replicas == 1
    assert machine.store.find(CHUNK) == Replica(CHUNK, 5, length)
    assert machine.get(CHUNK, 5) == data


@pytest.mark.parametrize("packet_blocks", [1, 3, 16])
def test_a_chunk_may_come_in_packets_of_any_number_of_blocks(machine: Machine, packet_blocks: int) -> None:
    data = data_of(MIB + 100)
    machine.put(CHUNK, 5, data, packet_bytes=packet_blocks * BLOCK)
    assert machine.get(CHUNK) == data


def test_small_chunks_share_a_file_and_large_ones_have_their_own(machine: Machine) -> None:
    for number in range(10):
        machine.put(CHUNK + number, 5, data_of(1000, number))
    machine.put(CHUNK + 10, 5, data_of(MIB))
    assert len(machine.segment_files()) == 1
    assert len(machine.chunk_files()) == 1
    assert {replica.chunk for replica in machine.store.replicas()} == set(range(CHUNK, CHUNK + 11))
    assert machine.store.usage().used_bytes == sum(machine.files().values())


@pytest.mark.parametrize(
    ("offset", "length", "start", "end"),
    [
        (0, 1, 0, BLOCK),
        (BLOCK - 1, 2, 0, 2 * BLOCK),
        (BLOCK, BLOCK, BLOCK, 2 * BLOCK),
        (3 * BLOCK + 5, 10 * MIB, 3 * BLOCK, None),
    ],
)
@pytest.mark.parametrize("blocks", [4, 40], ids=["small", "large"])
def test_a_range_is_answered_with_the_whole_blocks_around_it(
    machine: Machine, blocks: int, offset: int, length: int, start: int, end: int | None
) -> None:
    data = data_of(blocks * BLOCK - 100)
    machine.put(CHUNK, 5, data)
    plan = machine.run(machine.store.open_read(CHUNK, 5, offset, length))
    at, parts = start, []
    while (found := machine.run(machine.store.read_blocks(plan))) is not None:
        assert found.offset == at and len(found.data) <= MIB
        assert found.sums == block_checksums(found.data)
        at += len(found.data)
        parts.append(found.data)
    assert b"".join(parts) == data[start:end]


def test_a_range_without_a_byte_of_the_chunk_has_no_blocks(machine: Machine, content: bytes) -> None:
    machine.put(CHUNK, 5, content)
    for offset, length in [(0, 0), (100, 0), (len(content), 100), (10 * MIB, 1)]:
        plan = machine.run(machine.store.open_read(CHUNK, 5, offset, length))
        assert plan.length == len(content)
        assert machine.run(machine.store.read_blocks(plan)) is None


def test_a_negative_range_is_refused(machine: Machine, content: bytes) -> None:
    machine.put(CHUNK, 5, content)
    with pytest.raises(BadRequest):
        machine.run(machine.store.open_read(CHUNK, 5, -1, 10))


def test_a_chunk_that_is_not_here_is_said_to_be_not_here(machine: Machine) -> None:
    with pytest.raises(ChunkNotFound):
        machine.get(CHUNK)
    assert machine.store.find(CHUNK) is None


def test_no_file_stays_open_but_the_active_segment(machine: Machine, content: bytes) -> None:
    machine.put(CHUNK, 5, content)
    machine.put(CHUNK + 1, 5, b"small")
    assert machine.open_files() == 1
    machine.get(CHUNK)
    plan = machine.run(machine.store.open_read(CHUNK, 5, 0, 1))
    machine.run(machine.store.close_read(plan))
    machine.run(machine.store.close_read(plan))
    assert machine.open_files() == 1
    machine.run(machine.store.close())
    assert machine.open_files() == 0


# -- staging -----------------------------------------------------------------------------------------


def test_a_chunk_does_not_exist_before_it_is_sealed(machine: Machine, content: bytes) -> None:
    staged = machine.run(machine.store.stage(CHUNK, 5))
    machine.run(machine.store.write(staged, block_checksums(content), content))
    assert machine.store.find(CHUNK) is None and machine.store.replicas() == []
    with pytest.raises(ChunkNotFound):
        machine.get(CHUNK)
    machine.start()
    assert machine.store.replicas() == []


def test_a_discarded_chunk_leaves_nothing_behind(machine: Machine, content: bytes) -> None:
    staged = machine.run(machine.store.stage(CHUNK, 5))
    machine.run(machine.store.write(staged, block_checksums(content), content))
    machine.run(machine.store.discard(staged))
    machine.run(machine.store.discard(staged))
    assert machine.files() == {}
    assert machine.open_files() == 0


def test_what_a_killed_process_left_unfinished_is_removed_at_the_next_start(machine: Machine) -> None:
    staged = machine.run(machine.store.stage(CHUNK, 5))
    data = data_of(MIB)
    machine.run(machine.store.write(staged, block_checksums(data), data))
    assert len(machine.files()) == 1
    machine.start()
    assert machine.recovery.unfinished == 1
    assert machine.files() == {}


def test_data_that_does_not_match_its_checksums_is_not_taken(machine: Machine, content: bytes) -> None:
    staged = machine.run(machine.store.stage(CHUNK, 5))
    wrong = bytearray(content)
    wrong[-1] ^= 1
    with pytest.raises(ChecksumMismatch):
        machine.run(machine.store.write(staged, block_checksums(content), wrong))
    with pytest.raises(ChecksumMismatch):
        machine.run(machine.store.write(staged, b"", content))
    machine.run(machine.store.write(staged, block_checksums(content), content))
    machine.run(machine.store.seal(staged))
    assert machine.get(CHUNK) == content


def test_only_the_last_block_of_a_chunk_may_be_short(machine: Machine, content: bytes) -> None:
    staged = machine.run(machine.store.stage(CHUNK, 5))
    machine.run(machine.store.write(staged, block_checksums(content), content))
    with pytest.raises(BadRequest):
        machine.run(machine.store.write(staged, block_checksums(b"more"), b"more"))
    machine.run(machine.store.discard(staged))


def test_nothing_is_taken_in_when_only_the_reserve_is_left(machine: Machine, content: bytes) -> None:
    left = [1000]
    store = machine.start(available_bytes=lambda: left[0])
    store._reserved_bytes = 900
    staged = machine.run(store.stage(CHUNK, 5))
    left[0] = 899
    with pytest.raises(DiskFull):
        machine.run(store.write(staged, block_checksums(content), content))
    with pytest.raises(DiskFull):
        machine.run(store.stage(CHUNK + 1, 5))
    assert store.usage().available_bytes == 0
    left[0] = 1000
    machine.put(CHUNK, 5, content)
    assert store.usage().available_bytes == 100


# -- versions ----------------------------------------------------------------------------------------


def test_an_older_version_than_the_one_here_is_refused(machine: Machine, content: bytes) -> None:
    machine.put(CHUNK, 5, content)
    with pytest.raises(StaleVersion):
        machine.run(machine.store.stage(CHUNK, 4))


def test_a_reader_who_wants_a_newer_version_is_told_that_this_one_is_stale(
    machine: Machine, content: bytes
) -> None:
    machine.put(CHUNK, 5, content)
    with pytest.raises(StaleVersion):
        machine.get(CHUNK, 6)
    assert machine.get(CHUNK, 4) == content


@pytest.mark.parametrize("old_length", [100, MIB])
@pytest.mark.parametrize("new_length", [200, MIB + 1])
def test_a_newer_version_replaces_the_older_one_for_good(
    machine: Machine, old_length: int, new_length: int
) -> None:
    machine.put(CHUNK, 5, data_of(old_length))
    machine.put(CHUNK, 6, data_of(new_length, 1))
    assert machine.get(CHUNK) == data_of(new_length, 1)
    assert len(machine.chunk_files()) == (new_length > small_chunk_bytes_max)
    machine.start()
    assert machine.store.replicas() == [Replica(CHUNK, 6, new_length)]
    assert machine.get(CHUNK) == data_of(new_length, 1)


def test_whoever_stages_a_higher_version_fences_the_lower_one(machine: Machine, content: bytes) -> None:
    store = machine.store
    slow = machine.run(store.stage(CHUNK, 5))
    machine.run(store.write(slow, block_checksums(content[:BLOCK]), content[:BLOCK]))
    quick = machine.run(store.stage(CHUNK, 6))
    with pytest.raises(StaleVersion):
        machine.run(store.stage(CHUNK, 5))
    with pytest.raises(StaleVersion):
        machine.run(store.write(slow, block_checksums(content[BLOCK:]), content[BLOCK:]))
    with pytest.raises(StaleVersion):
        machine.run(store.seal(slow))
    machine.run(store.write(quick, block_checksums(content), content))
    machine.run(store.seal(quick))
    assert machine.get(CHUNK, 6) == content


def test_sealing_the_same_again_is_answered_the_same(machine: Machine, content: bytes) -> None:
    first = machine.put(CHUNK, 5, content)
    files = machine.files()
    assert machine.put(CHUNK, 5, content) == first
    assert machine.files() == files
    machine.start()
    assert machine.put(CHUNK, 5, content) == first


def test_sealing_the_same_version_with_other_content_is_refused(machine: Machine, content: bytes) -> None:
    machine.put(CHUNK, 5, content)
    other = data_of(len(content), 1)
    with pytest.raises(ChunkError, match="other content"):
        machine.put(CHUNK, 5, other)
    assert machine.get(CHUNK) == content
    assert not [name for name in machine.files() if name.startswith("staging")]


# -- deleting and compaction -------------------------------------------------------------------------


def test_a_delete_drops_versions_up_to_the_one_named(machine: Machine, content: bytes) -> None:
    machine.put(CHUNK, 5, content)
    assert not machine.run(machine.store.delete(CHUNK, 4))
    assert machine.get(CHUNK) == content
    assert machine.run(machine.store.delete(CHUNK, 7))
    assert not machine.run(machine.store.delete(CHUNK, 7))
    with pytest.raises(ChunkNotFound):
        machine.get(CHUNK)
    machine.run(machine.store.close())
    machine.start()
    assert machine.store.replicas() == []


def test_a_deleted_chunk_can_be_written_again_with_the_same_version(machine: Machine, content: bytes) -> None:
    machine.put(CHUNK, 5, content)
    machine.run(machine.store.delete(CHUNK, 5))
    machine.put(CHUNK, 5, content)
    machine.run(machine.store.close())
    machine.start()
    assert machine.get(CHUNK, 5) == content


def test_a_delete_does_not_disturb_who_is_reading(machine: Machine, content: bytes) -> None:
    content = content * 8
    machine.put(CHUNK, 5, content)
    plan = machine.run(machine.store.open_read(CHUNK, 5, 0, len(content)))
    first = machine.run(machine.store.read_blocks(plan))
    machine.run(machine.store.delete(CHUNK, 5))
    machine.run(machine.store.compact())
    assert first is not None
    parts = [first.data]
    while (blocks := machine.run(machine.store.read_blocks(plan))) is not None:
        parts.append(blocks.data)
    assert b"".join(parts) == content


def fill_segments(machine: Machine, count: int) -> dict[int, bytes]:
    """Chunks of 1000 bytes, twenty to a segment."""
    machine.start(segment_bytes=20_000)
    contents = {CHUNK + number: data_of(1000, number) for number in range(count)}
    for chunk, data in contents.items():
        machine.put(chunk, 5, data)
    return contents


def test_segments_end_when_they_are_full(machine: Machine) -> None:
    contents = fill_segments(machine, 100)
    assert len(machine.segment_files()) == 5
    machine.start(segment_bytes=20_000)
    assert {chunk: machine.get(chunk) for chunk in contents} == contents


def test_a_restart_goes_on_in_the_last_segment(machine: Machine) -> None:
    for number in range(5):
        machine.put(CHUNK + number, 5, data_of(1000, number))
        machine.start()
    assert len(machine.segment_files()) == 1
    assert len(machine.store.replicas()) == 5


def test_a_segment_in_which_nothing_lives_is_removed(machine: Machine) -> None:
    contents = fill_segments(machine, 100)
    for chunk in list(contents)[:60]:
        machine.run(machine.store.delete(chunk, 5))
        del contents[chunk]
    compaction = machine.run(machine.store.compact())
    assert compaction.removed_segments >= 2 and compaction.moved_chunks <= 20
    assert len(machine.segment_files()) <= 4
    machine.start(segment_bytes=20_000)
    assert {replica.chunk for replica in machine.store.replicas()} == set(contents)


def test_compaction_moves_what_lives_and_frees_the_rest(machine: Machine) -> None:
    contents = fill_segments(machine, 200)
    used_before = machine.store.usage().used_bytes
    for chunk in list(contents):
        if chunk % 4:
            machine.run(machine.store.delete(chunk, 5))
            del contents[chunk]
    removed_bytes = 0
    while (compaction := machine.run(machine.store.compact())).removed_segments:
        removed_bytes += compaction.removed_bytes
    assert removed_bytes > used_before / 2
    assert machine.store.usage().used_bytes == sum(machine.files().values()) < used_before / 2
    assert {chunk: machine.get(chunk) for chunk in contents} == contents
    machine.start(segment_bytes=20_000)
    assert {chunk: machine.get(chunk) for chunk in contents} == contents
    assert len(machine.store.replicas()) == len(contents)
    assert machine.lost == []


def test_a_segment_that_dies_as_a_whole_costs_no_tombstones(machine: Machine) -> None:
    contents = fill_segments(machine, 41)
    active_bytes = machine.files()[machine.segment_files()[-1]]
    for chunk in list(contents)[:40]:
        machine.run(machine.store.delete(chunk, 5))
    assert machine.run(machine.store.compact()).removed_segments == 2
    assert list(machine.files().values()) == [active_bytes]


def test_tombstones_outlive_the_segment_that_they_are_in(machine: Machine) -> None:
    """They are written into one segment, which is compacted, while what they kill is still in another."""
    contents = fill_segments(machine, 20)
    deleted = [CHUNK + number for number in range(9)]
    for chunk in deleted:
        machine.run(machine.store.delete(chunk, 5))
        del contents[chunk]
    for number in range(20, 38):
        machine.put(CHUNK + number, 5, data_of(1000, number))
    old, young = machine.segment_files()
    for number in range(20, 38):
        machine.run(machine.store.delete(CHUNK + number, 5))
    machine.put(CHUNK + 40, 5, data_of(1000, 40))
    machine.run(machine.store.delete(CHUNK + 40, 5))
    machine.put(CHUNK + 41, 5, data_of(1000, 41))
    contents[CHUNK + 41] = data_of(1000, 41)
    while machine.run(machine.store.compact()).removed_segments:
        pass
    assert old in machine.files() and young not in machine.files()
    for _start in range(2):
        machine.start(segment_bytes=20_000)
        assert {replica.chunk for replica in machine.store.replicas()} == set(contents)


def test_compaction_comes_to_an_end_when_nothing_changes(machine: Machine) -> None:
    contents = fill_segments(machine, 100)
    for chunk in list(contents)[::2]:
        machine.run(machine.store.delete(chunk, 5))
    rounds = 0
    while machine.run(machine.store.compact()).removed_segments:
        rounds += 1
        assert rounds < 20
    files = machine.files()
    machine.run(machine.store.compact())
    assert machine.files() == files


def test_a_reader_finds_a_chunk_that_compaction_moves_while_it_looks(machine: Machine) -> None:
    contents = fill_segments(machine, 40)
    chunk = CHUNK + 3
    reading = read_chunk(machine.store, chunk)
    opening = next(reading)  # It has looked the place up, and is about to open the file ...
    for other in list(contents)[:20]:
        if other != chunk:
            machine.run(machine.store.delete(other, 5))
    machine.run(machine.store.compact())
    assert machine.segment_files()[0] not in str(opening)

    def go_on() -> object:
        # ... which is no longer there.
        effect = opening
        try:
            while True:
                try:
                    result = machine.run(performing(effect))
                except OSError as fault:
                    effect = reading.throw(fault)
                else:
                    effect = reading.send(result)
        except StopIteration as stop:
            return stop.value

    assert go_on() == (5, contents[chunk])


def performing(effect: object):  # type: ignore[no-untyped-def]
    return (yield effect)


def test_many_deletes_are_written_down_without_waiting_for_a_compaction(machine: Machine) -> None:
    for number in range(1001):
        machine.put(CHUNK + number, 5, b"x")
    size = sum(machine.files().values())
    for number in range(1001):
        machine.run(machine.store.delete(CHUNK + number, 5))
    assert sum(machine.files().values()) > size
    machine.start()
    assert len(machine.store.replicas()) <= 1
