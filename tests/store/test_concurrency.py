"""Concurrent participants: in random orders by seed, and on real threads with a real fsync."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from store.machine import RealMachine, SimulatedMachine, read_chunk, write_chunk

from peacefs.protocol.errors import ChunkError, ChunkNotFound, StaleVersion
from peacefs.protocol.limits import small_chunk_bytes_max
from peacefs.runtime import effects as fx

CHUNK = 0x10000000001
SMALL = Random(1).randbytes(3000)
LARGE = Random(2).randbytes(small_chunk_bytes_max + 1)
SIZES = pytest.mark.parametrize("content", [SMALL, LARGE], ids=["small", "large"])
SEEDS = 40


@SIZES
def test_a_delete_does_not_take_away_what_is_sealed_after_it(content: bytes) -> None:
    """It has dropped the replica and is about to remove the file, when a new file gets the same name."""
    survivors = 0
    for seed in range(SEEDS):
        machine = SimulatedMachine(seed)
        store = machine.start()
        machine.put(CHUNK, 5, content)
        machine.driver.run_all([store.delete(CHUNK, 5), write_chunk(store, CHUNK, 5, content)])
        if store.find(CHUNK) is not None:
            survivors += 1
            assert machine.get(CHUNK) == content
    assert 0 < survivors < SEEDS


@SIZES
def test_first_sealed_content_of_a_version_stays(content: bytes) -> None:
    other = content[::-1]
    winners = set()
    for seed in range(SEEDS):
        machine = SimulatedMachine(seed)
        store = machine.start()
        outcomes = machine.driver.run_all(
            [write_chunk(store, CHUNK, 5, data) for data in (content, other, content)]
        )
        winner = machine.get(CHUNK)
        winners.add(winner)
        for data, outcome in zip((content, other, content), outcomes, strict=True):
            assert isinstance(outcome, ChunkError) == (data != winner)
        machine.start()
        assert machine.get(CHUNK) == winner
    assert winners == {content, other}


@SIZES
def test_highest_of_many_versions_at_once_stays(content: bytes) -> None:
    for seed in range(SEEDS):
        machine = SimulatedMachine(seed)
        store = machine.start()
        versions = list(range(1, 7))
        machine.random.shuffle(versions)
        outcomes = machine.driver.run_all(
            [write_chunk(store, CHUNK, version, content + bytes([version])) for version in versions]
        )
        assert not isinstance(outcomes[versions.index(6)], Exception)
        assert all(isinstance(each, (tuple, StaleVersion)) for each in outcomes)
        for _start in range(2):
            assert machine.run(read_chunk(machine.store, CHUNK)) == (6, content + b"\6")
            machine.start()
        assert len(machine.files()) == 1


def test_compaction_brings_nothing_back_and_takes_nothing_away() -> None:
    """Chunks are deleted and replaced while their records are copied."""
    for seed in range(SEEDS):
        machine = SimulatedMachine(seed)
        store = machine.start(segment_bytes=30_000)
        for number in range(30):
            machine.put(CHUNK + number, 5, SMALL)
        for number in range(30):
            if number % 3:
                machine.run(store.delete(CHUNK + number, 5))
        busy = [store.compact(), store.compact()]
        busy += [store.delete(CHUNK + number, 5) for number in (0, 3, 6, 9)]
        busy += [write_chunk(store, CHUNK + number, 6, b"new") for number in (12, 15, 18)]
        busy += [read_chunk(store, CHUNK + number) for number in (21, 24, 27)]
        outcomes = machine.driver.run_all(busy)
        assert outcomes[-3:] == [(5, SMALL)] * 3
        machine.run(store.close())
        for _start in range(2):
            held = {replica.chunk - CHUNK: machine.get(replica.chunk) for replica in machine.store.replicas()}
            assert held == {12: b"new", 15: b"new", 18: b"new", 21: SMALL, 24: SMALL, 27: SMALL}
            machine.start(segment_bytes=30_000)


@SIZES
def test_readers_see_a_replica_whole_or_not_at_all_while_it_is_replaced_and_deleted(content: bytes) -> None:
    for seed in range(SEEDS):
        machine = SimulatedMachine(seed)
        store = machine.start()
        machine.put(CHUNK, 5, content)
        busy = [write_chunk(store, CHUNK, 6, content[::-1]), store.delete(CHUNK, 6), store.compact()]
        readers = [read_chunk(store, CHUNK) for _ in range(10)]
        outcomes = machine.driver.run_all([*busy, *readers])[len(busy) :]
        for outcome in outcomes:
            assert isinstance(outcome, ChunkNotFound) or outcome in [(5, content), (6, content[::-1])]
        assert machine.open_files() <= 1


def test_writers_on_threads_share_fsyncs(tmp_path: Path) -> None:
    machine = RealMachine(tmp_path, sync_to_disk=True)
    store = machine.start(segment_bytes=200_000)
    syncs: list[fx.Effect] = []
    contents = {CHUNK + number: Random(number).randbytes(number * 7 % 3000) for number in range(320)}

    def counted(steps: fx.Steps[object]) -> fx.Steps[object]:
        result = None
        fault: Exception | None = None
        while True:
            try:
                effect = steps.send(result) if fault is None else steps.throw(fault)
            except StopIteration as stop:
                return stop.value
            if isinstance(effect, fx.Sync):
                syncs.append(effect)
            try:
                result, fault = (yield effect), None
            except Exception as raised:
                fault = raised

    start_together = threading.Barrier(16)

    def write(part: list[int]) -> None:
        start_together.wait()
        for chunk in part:
            machine.run(counted(write_chunk(store, chunk, 5, contents[chunk])))
            assert machine.get(chunk) == contents[chunk]

    chunks = list(contents)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(write, [chunks[at::16] for at in range(16)]))
    assert len(syncs) < len(contents) / 2
    for _start in range(2):
        assert {chunk: machine.get(chunk) for chunk in contents} == contents
        machine.run(machine.store.close())
        machine.start()
    machine.run(machine.store.close())


def test_threads_that_write_read_delete_and_compact_do_not_get_in_each_others_way(tmp_path: Path) -> None:
    machine = RealMachine(tmp_path)
    store = machine.start(segment_bytes=100_000)
    done = threading.Event()

    def work(thread: int) -> None:
        random = Random(thread)
        mine: dict[int, bytes] = {}
        for number in range(150):
            chunk = CHUNK + thread * 1000 + number
            mine[chunk] = random.randbytes(random.choice([10, 2000, 2000, 300_000]))
            machine.put(chunk, 5, mine[chunk])
            if random.random() < 0.6:
                gone = random.choice(list(mine))
                assert machine.run(store.delete(gone, 5))
                del mine[gone]
            for chunk in random.sample(list(mine), min(3, len(mine))):
                assert machine.get(chunk) == mine[chunk]
        kept.update(mine)

    def compact() -> None:
        while not done.is_set():
            machine.run(store.compact())

    kept: dict[int, bytes] = {}
    compactor = threading.Thread(target=compact)
    compactor.start()
    try:
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(work, range(6)))
    finally:
        done.set()
        compactor.join()
    assert {replica.chunk for replica in store.replicas()} == set(kept)
    assert all(machine.get(chunk) == data for chunk, data in kept.items())
    assert store.usage().used_bytes == sum(machine.files().values())
    machine.run(store.close())
    machine.start()
    assert {replica.chunk for replica in machine.store.replicas()} == set(kept)
    machine.run(machine.store.close())
    assert machine.open_files() == 0
