"""The chunk store's contract with writers and readers, on a real disk and on the simulated one alike."""

from __future__ import annotations

import pytest
from store.machine import Machine, SimulatedMachine, data_of

from peacefs.datanode.store.readahead import readahead_bytes
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
from peacefs.runtime import effects as fx

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


# -- writing and reading -----------------------------------------------------------------------------


@pytest.mark.parametrize("length", LENGTHS)
def test_sealed_replica_is_read_back_and_survives_a_restart(machine: Machine, length: int) -> None:
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
    staged = machine.store.stage(CHUNK, 5)
    machine.run(machine.store.write(staged, block_checksums(content), content))
    assert machine.store.find(CHUNK) is None and machine.store.replicas() == []
    with pytest.raises(ChunkNotFound):
        machine.get(CHUNK)
    machine.start()
    assert machine.store.replicas() == []


def test_a_discarded_chunk_leaves_nothing_behind(machine: Machine, content: bytes) -> None:
    staged = machine.store.stage(CHUNK, 5)
    machine.run(machine.store.write(staged, block_checksums(content), content))
    machine.run(machine.store.discard(staged))
    machine.run(machine.store.discard(staged))
    assert machine.files() == {}
    assert machine.open_files() == 0


@pytest.mark.evidence("half-written-files")
def test_unfinished_replica_of_a_killed_process_is_removed_at_the_next_start(machine: Machine) -> None:
    staged = machine.store.stage(CHUNK, 5)
    data = data_of(MIB)
    machine.run(machine.store.write(staged, block_checksums(data), data))
    assert len(machine.files()) == 1
    machine.start()
    assert machine.recovery.unfinished == 1
    assert machine.files() == {}


def test_data_that_does_not_match_its_checksums_is_not_taken(machine: Machine, content: bytes) -> None:
    staged = machine.store.stage(CHUNK, 5)
    wrong = bytearray(content)
    wrong[-1] ^= 1
    with pytest.raises(ChecksumMismatch):
        machine.run(machine.store.write(staged, block_checksums(content), wrong))
    with pytest.raises(ChecksumMismatch):
        machine.run(machine.store.write(staged, b"", content))
    machine.run(machine.store.write(staged, block_checksums(content), content))
    machine.run(machine.store.seal(staged))
    assert machine.get(CHUNK) == content


def test_a_chunk_whose_end_does_not_match_its_checksums_is_not_sealed_and_leaves_nothing(
    machine: Machine, content: bytes
) -> None:
    staged = machine.store.stage(CHUNK, 5)
    with pytest.raises(ChecksumMismatch):
        machine.run(machine.store.seal(staged, block_checksums(content), content[1:] + content[:1]))
    assert machine.store.find(CHUNK) is None and machine.files() == {}
    machine.put(CHUNK, 4, content)
    assert machine.get(CHUNK) == content


def test_only_the_last_block_of_a_chunk_may_be_short(machine: Machine, content: bytes) -> None:
    staged = machine.store.stage(CHUNK, 5)
    machine.run(machine.store.write(staged, block_checksums(content), content))
    with pytest.raises(BadRequest):
        machine.run(machine.store.write(staged, block_checksums(b"more"), b"more"))
    machine.run(machine.store.discard(staged))


def test_nothing_is_taken_in_when_only_the_reserve_is_left(machine: Machine, content: bytes) -> None:
    left = [1000]
    store = machine.start(available_bytes=lambda: left[0])
    store._reserved_bytes = 900
    staged = store.stage(CHUNK, 5)
    left[0] = 899
    with pytest.raises(DiskFull):
        machine.run(store.write(staged, block_checksums(content), content))
    with pytest.raises(DiskFull):
        store.stage(CHUNK + 1, 5)
    assert store.usage().available_bytes == 0
    left[0] = 1000
    machine.put(CHUNK, 5, content)
    assert store.usage().available_bytes == 100


# -- versions ----------------------------------------------------------------------------------------


def test_an_older_version_than_the_one_here_is_refused(machine: Machine, content: bytes) -> None:
    machine.put(CHUNK, 5, content)
    with pytest.raises(StaleVersion):
        machine.store.stage(CHUNK, 4)


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


def test_higher_staged_version_fences_the_lower_one(machine: Machine, content: bytes) -> None:
    store = machine.store
    slow = store.stage(CHUNK, 5)
    machine.run(store.write(slow, block_checksums(content[:BLOCK]), content[:BLOCK]))
    quick = store.stage(CHUNK, 6)
    with pytest.raises(StaleVersion):
        store.stage(CHUNK, 5)
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


def test_sealing_again_what_has_rotted_replaces_it_rather_than_attest_it(machine: Machine, content: bytes) -> None:
    machine.put(CHUNK, 5, content)
    (name,) = machine.chunk_files() or machine.segment_files()
    at = machine.content(name).index(content[:100])
    machine.damage(name, at + 50)
    with pytest.raises(ChecksumMismatch):
        machine.get(CHUNK)
    machine.put(CHUNK, 5, content)
    assert machine.get(CHUNK) == content
    machine.start()
    assert machine.get(CHUNK) == content


def test_sealing_the_same_version_with_other_content_is_refused(machine: Machine, content: bytes) -> None:
    machine.put(CHUNK, 5, content)
    other = data_of(len(content), 1)
    with pytest.raises(ChunkError, match="other content"):
        machine.put(CHUNK, 5, other)
    assert machine.get(CHUNK) == content
    assert not [name for name in machine.files() if name.startswith("staging")]


def test_the_disk_is_asked_ahead_for_all_of_a_large_chunk_once(simulated: SimulatedMachine) -> None:
    """Otherwise the reader and the disk would wait for each other in turn."""
    length = 3 * readahead_bytes + 5000
    simulated.put(CHUNK, 5, data_of(length))
    ahead, at, plan = 0, 0, simulated.run(simulated.store.open_read(CHUNK, 5, 0, length))
    while at < length:
        steps = simulated.store.read_blocks(plan)
        effect = next(steps)
        if isinstance(effect, fx.ReadAhead):
            assert effect.offset == ahead
            ahead += effect.length
            effect = steps.send(None)
        assert isinstance(effect, fx.ReadAt)
        at = effect.offset + effect.length
        assert min(at, length) <= ahead <= length
        steps.close()
        plan.at = at
    assert ahead == length
    simulated.run(simulated.store.close_read(plan))
