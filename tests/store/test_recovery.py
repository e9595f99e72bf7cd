"""Recovery of a directory that differs from what the last process left."""

from __future__ import annotations

import pytest
from store.machine import Machine, data_of

from peacefs.datanode.store.layout import FOOTER_BYTES, HEADER_BYTES, record_bytes
from peacefs.datanode.store.recovery_report import StoreRecovery
from peacefs.protocol.errors import ChecksumMismatch, ChunkNotFound
from peacefs.protocol.limits import KIB, MIB
from peacefs.protocol.messages import Replica
from peacefs.runtime import effects as fx

CHUNK = 0x10000000001
LENGTH = 1000
RECORD = record_bytes(LENGTH)


def put_small(machine: Machine, count: int) -> dict[int, bytes]:
    contents = {CHUNK + number: data_of(LENGTH, number) for number in range(count)}
    for chunk, data in contents.items():
        machine.put(chunk, 5, data)
    return contents


def readable(machine: Machine) -> dict[int, bytes]:
    return {replica.chunk: machine.get(replica.chunk, 5) for replica in machine.store.replicas()}


# -- bytes that changed ------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 1000, 200 * KIB, 300 * KIB, 3 * MIB])
@pytest.mark.evidence("checksums-hold")
def test_a_bit_that_flips_in_a_running_store_is_never_served(machine: Machine, length: int) -> None:
    data = data_of(length)
    machine.put(CHUNK, 5, data)
    (name,) = machine.files()
    size = machine.files()[name]
    for offset in {0, size // 3, size // 2, size - FOOTER_BYTES, size - 1}:
        machine.damage(name, offset)
        with pytest.raises(ChecksumMismatch):
            machine.get(CHUNK)
        machine.damage(name, offset)
    assert machine.get(CHUNK) == data
    assert machine.open_files() <= 1


@pytest.mark.parametrize("bad_block", [0, 7, 31])
def test_blocks_before_a_damaged_one_can_still_be_read(machine: Machine, bad_block: int) -> None:
    data = data_of(2 * MIB)
    machine.put(CHUNK, 5, data)
    (name,) = machine.files()
    machine.damage(name, bad_block * 64 * KIB + 5)
    store = machine.store
    plan = machine.run(store.open_read(CHUNK, 5, 0, bad_block * 64 * KIB))
    read = 0
    while (blocks := machine.run(store.read_blocks(plan))) is not None:
        assert blocks.data == data[blocks.offset : blocks.offset + len(blocks.data)]
        read += len(blocks.data)
    assert read == bad_block * 64 * KIB
    with pytest.raises(ChecksumMismatch):
        machine.get(CHUNK)


@pytest.mark.parametrize("part", ["header", "data"])
@pytest.mark.parametrize("victim", [0, 5, 8])
@pytest.mark.evidence("segment-damaged")
def test_damage_in_the_middle_of_a_segment_costs_the_record_that_it_hit(
    machine: Machine, part: str, victim: int
) -> None:
    contents = put_small(machine, 10)
    (name,) = machine.segment_files()
    machine.damage(name, victim * RECORD + (3 if part == "header" else HEADER_BYTES + 500))
    machine.start()
    del contents[CHUNK + victim]
    assert readable(machine) == contents
    assert machine.recovery.damaged_bytes == RECORD and machine.recovery.torn_bytes == 0


@pytest.mark.evidence("segment-damaged")
def test_sound_records_of_a_damaged_segment_move_to_a_sound_one(machine: Machine) -> None:
    contents = put_small(machine, 10)
    (name,) = machine.segment_files()
    machine.damage(name, 4 * RECORD)
    machine.start()
    assert machine.run(machine.store.compact()).moved_chunks == 9
    assert name not in machine.files()
    machine.start()
    del contents[CHUNK + 4]
    assert readable(machine) == contents
    assert machine.recovery.damaged_bytes == 0


def test_a_sealed_segment_is_not_read_in_full_at_start_yet_its_damage_is_never_served(machine: Machine) -> None:
    machine.start(segment_bytes=5 * RECORD)
    contents = put_small(machine, 12)
    name = machine.segment_files()[0]
    machine.damage(name, 2 * RECORD + HEADER_BYTES + 500)
    machine.start(segment_bytes=5 * RECORD)
    assert len(machine.store.replicas()) == 12
    with pytest.raises(ChecksumMismatch):
        machine.get(CHUNK + 2)
    del contents[CHUNK + 2]
    assert {chunk: machine.get(chunk) for chunk in contents} == contents


def test_compaction_drops_and_reports_what_it_cannot_read(machine: Machine) -> None:
    machine.start(segment_bytes=6 * RECORD)
    put_small(machine, 12)
    name = machine.segment_files()[0]
    machine.damage(name, 1 * RECORD)
    machine.damage(name, 4 * RECORD + HEADER_BYTES + 500)
    for number in (0, 2, 3):
        machine.run(machine.store.delete(CHUNK + number, 5))
    while machine.run(machine.store.compact()).removed_segments:
        pass
    assert name not in machine.files()
    assert {replica.chunk for replica in machine.lost} == {CHUNK + 1, CHUNK + 4}
    with pytest.raises(ChunkNotFound):
        machine.get(CHUNK + 1)
    assert machine.get(CHUNK + 5) == data_of(LENGTH, 5)


def test_data_that_looks_like_a_record_is_not_taken_for_one(machine: Machine) -> None:
    """A chunk contains a copy of a segment; damage to its own header starts a search for records inside it."""
    machine.start(segment_bytes=1)
    machine.put(CHUNK, 5, b"deleted long ago")
    (old,) = machine.segment_files()
    machine.put(CHUNK + 1, 5, machine.content(old) * 3)
    machine.run(machine.store.delete(CHUNK, 5))
    machine.run(machine.store.compact())
    name = next(name for name in machine.segment_files() if b"long ago" in machine.content(name))
    assert name != old
    machine.damage(name, 0)
    machine.start()
    assert machine.store.replicas() == []


# -- ends that are missing ---------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [1, RECORD - HEADER_BYTES, RECORD - 1, RECORD + 10])
@pytest.mark.evidence("half-written-files")
def test_a_torn_tail_is_cut_off_and_appends_go_on_there(machine: Machine, cut: int) -> None:
    contents = put_small(machine, 10)
    (name,) = machine.segment_files()
    machine.overwrite(name, machine.content(name)[:-cut])
    machine.start()
    lost = -(-cut // RECORD)
    for number in range(10 - lost, 10):
        del contents[CHUNK + number]
    assert machine.recovery.torn_bytes == lost * RECORD - cut
    assert machine.files() == {name: (10 - lost) * RECORD}
    assert readable(machine) == contents
    contents |= put_small(machine, 12)
    assert machine.segment_files() == [name]
    machine.start()
    assert readable(machine) == contents


def test_a_tail_of_nothing_readable_is_cut_off(machine: Machine) -> None:
    contents = put_small(machine, 3)
    (name,) = machine.segment_files()
    machine.overwrite(name, machine.content(name) + bytes(5000) + data_of(100_000))
    machine.start()
    assert machine.recovery.torn_bytes == 105_000
    assert machine.files() == {name: 3 * RECORD}
    assert readable(machine) == contents


def test_an_empty_segment_is_used(machine: Machine) -> None:
    machine.overwrite("segments/00000007-0000002a.segment", b"")
    machine.start()
    put_small(machine, 1)
    assert machine.segment_files() == ["segments/00000007-0000002a.segment"]


@pytest.mark.evidence("half-written-files")
def test_a_chunk_file_that_was_cut_is_set_aside(machine: Machine) -> None:
    machine.put(CHUNK, 5, data_of(MIB))
    machine.put(CHUNK + 1, 5, data_of(MIB, 1))
    name = next(name for name in machine.chunk_files() if f"{CHUNK:016x}" in name)
    machine.overwrite(name, machine.content(name)[:-1])
    machine.start()
    assert machine.recovery.damaged_files == [f"{machine.directory}/{name}"]
    assert f"damaged/{name.split('/')[-1]}" in machine.files()
    assert machine.store.replicas() == [Replica(CHUNK + 1, 5, MIB)]


@pytest.mark.parametrize("restarted", [False, True], ids=["in a running store", "found by a start"])
@pytest.mark.evidence("files-swapped")
def test_chunk_files_that_were_swapped_are_never_served_for_one_another(machine: Machine, restarted: bool) -> None:
    """Each file is whole and has right checksums, but belongs to another chunk than its name says."""
    for number in (0, 1):
        machine.put(CHUNK + number, 5, data_of(MIB, number))
    one, other = sorted(machine.chunk_files())
    contents = machine.content(one), machine.content(other)
    machine.overwrite(one, contents[1])
    machine.overwrite(other, contents[0])
    if restarted:
        machine.start()
    for number in (0, 1):
        with pytest.raises((ChecksumMismatch, ChunkNotFound)):
            machine.get(CHUNK + number)


# -- files that should not be there ------------------------------------------------------------------


def test_an_older_version_beside_a_newer_one_is_removed(machine: Machine) -> None:
    machine.put(CHUNK, 5, data_of(MIB))
    (old,) = machine.chunk_files()
    old_content = machine.content(old)
    machine.put(CHUNK, 6, data_of(MIB, 1))
    machine.overwrite(old, old_content)
    machine.start()
    assert machine.recovery.stale == 1
    assert machine.store.replicas() == [Replica(CHUNK, 6, MIB)]
    assert len(machine.files()) == 1


def test_files_of_others_are_named_and_left_alone(machine: Machine) -> None:
    put_small(machine, 1)
    machine.put(CHUNK + 1, 5, data_of(MIB))
    folder = machine.chunk_files()[0].rsplit("/", 1)[0]
    foreign = [f"{folder}/notes.txt", "segments/readme", "chunks/stray", "segments/7-2a.segment"]
    for name in foreign:
        machine.overwrite(name, b"mine")
    machine.start()
    assert sorted(machine.recovery.foreign) == sorted(f"{machine.directory}/{name}" for name in foreign)
    assert set(foreign) <= machine.files().keys()
    assert len(machine.store.replicas()) == 2


@pytest.mark.parametrize("length", [LENGTH, MIB])
def test_a_file_that_vanishes_under_a_running_store_is_noticed_by_the_first_reader(
    machine: Machine, length: int
) -> None:
    machine.put(CHUNK, 5, data_of(length))
    (name,) = machine.files()
    machine.run(fx.remove(f"{machine.directory}/{name}"))
    for _read in range(2):
        with pytest.raises(ChunkNotFound):
            machine.get(CHUNK)
    assert machine.lost == [Replica(CHUNK, 5, length)]
    assert machine.store.replicas() == []


def test_the_summary_of_a_start_says_what_was_not_as_it_should_be() -> None:
    assert StoreRecovery(replicas=3).summary() == "3 replicas"
    odd = StoreRecovery(replicas=3, torn_bytes=17, damaged_files=["a", "b"])
    assert odd.summary() == "3 replicas, 17 torn bytes cut off, 2 damaged files moved aside"
