"""Compaction of deleted chunks and reuse of their room, on a real disk and on the simulated one alike."""

from __future__ import annotations

from typing import Any

import pytest
from store.machine import Machine, data_of, read_chunk

from peacefs.protocol.errors import ChunkNotFound
from peacefs.runtime import effects as fx

CHUNK = 0x10000000001


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
    """Write chunks of 1000 bytes, twenty per segment."""
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
    """They are written into a segment that is compacted while their targets are still in another one."""
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
    opening = next(reading)  # It has looked up the place, and is about to read the file ...
    for other in list(contents)[:20]:
        if other != chunk:
            machine.run(machine.store.delete(other, 5))
    machine.run(machine.store.compact())
    # ... which no longer exists.
    assert isinstance(opening, fx.ReadPart)
    assert not opening.path.endswith(tuple(machine.segment_files()))
    assert machine.run(resumed(reading, opening)) == (5, contents[chunk])


def resumed(steps: fx.Steps[Any], effect: fx.Effect) -> fx.Steps[Any]:
    """Yield the rest of a participant that has already requested `effect`."""
    try:
        while True:
            try:
                result = yield effect
            except OSError as fault:
                effect = steps.throw(fault)
            else:
                effect = steps.send(result)
    except StopIteration as stop:
        return stop.value


def test_many_deletes_are_written_down_without_waiting_for_a_compaction(machine: Machine) -> None:
    for number in range(1001):
        machine.put(CHUNK + number, 5, b"x")
    size = sum(machine.files().values())
    for number in range(1001):
        machine.run(machine.store.delete(CHUNK + number, 5))
    assert sum(machine.files().values()) > size
    machine.start()
    assert len(machine.store.replicas()) <= 1
