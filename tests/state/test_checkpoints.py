"""Checkpoints while structures change: a load gives the content at each checkpoint's beginning."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.long_runs import often
from support.waiting import wait_until

from peacefs.protocol.errors import (
    BadRequest,
    CheckpointCancelled,
    CheckpointDamaged,
    FileNotFound,
    PagesExhausted,
    SchemaMismatch,
    StateError,
)
from peacefs.state import Checkpointer, Deque, List, MemoryStore, PageManager, Raw, UnorderedMap

PAGE = 8192
COUNTS = pa.schema([("key", pa.int64()), ("count", pa.int64())])
NUMBERS = pa.schema([("number", pa.int64())])
KEYS = st.integers(0, 4000)
LENGTH = st.integers(0, 1500)


def manager(count: int = 3000) -> PageManager:
    return PageManager(page_bytes=PAGE, memory_bytes_max=count * PAGE)


def count_map(pages: PageManager) -> UnorderedMap:
    return UnorderedMap.create(pages.page_set("counts"), COUNTS, "key")


def content(held: UnorderedMap) -> dict[Any, Any]:
    return {row["key"]: row["count"] for batch in held.scan() for row in batch.to_pylist()}


class Operator(RuleBasedStateMachine):
    """A map, a list and a deque; their models; and copies of the models at each stored checkpoint."""

    @initialize(generations_max=st.integers(1, 4), keep=st.integers(1, 3))
    def begin(self, generations_max: int, keep: int) -> None:
        self.store = MemoryStore()
        self.generations_max, self.keep = generations_max, keep
        self.saved: dict[int, tuple[dict[int, int], list[int], list[int]]] = {}
        self.restart()

    def restart(self) -> None:
        """Start a process, perhaps after another one was killed."""
        self.pages = manager()
        self.checkpointer = Checkpointer(
            self.pages, self.store, "unit", generations_max=self.generations_max, keep=self.keep
        )
        self.running: Any = None
        self.began: Any = None
        loaded = self.checkpointer.load()
        assert (loaded.sequence if loaded else 0) == max(self.saved, default=0)
        model = self.saved[loaded.sequence] if loaded else ({}, [], [])
        self.counts, self.model = count_map(self.pages), dict(model[0])
        self.list, self.list_model = List.create(self.pages.page_set("list"), NUMBERS), list(model[1])
        self.deque, self.deque_model = Deque.create(self.pages.page_set("deque"), NUMBERS), deque(model[2])
        self.check()

    def check(self) -> None:
        assert content(self.counts) == self.model
        assert list(self.list) == self.list_model
        assert list(self.deque) == list(self.deque_model)

    @rule(start=KEYS, length=LENGTH, delta=st.integers(1, 9))
    def add(self, start: int, length: int, delta: int) -> None:
        self.counts.add_at(np.arange(start, start + length), delta)
        for key in range(start, start + length):
            self.model[key] = self.model.get(key, 0) + delta

    @rule(start=KEYS, length=LENGTH)
    def remove(self, start: int, length: int) -> None:
        self.counts.remove(np.arange(start, start + length))
        for key in range(start, start + length):
            self.model.pop(key, None)

    @rule(length=LENGTH)
    def append(self, length: int) -> None:
        self.list.extend_batch(np.arange(length))
        self.list_model.extend(range(length))

    @rule(at=KEYS, length=LENGTH)
    def cut(self, at: int, length: int) -> None:
        del self.list[at : at + length]
        del self.list_model[at : at + length]

    @rule(length=LENGTH, left=st.booleans())
    def move(self, length: int, left: bool) -> None:
        if left:
            self.deque.extendleft_batch(np.arange(length))
            self.deque_model.extendleft(reversed(range(length)))
        else:
            self.deque.popleft_batch(length)
            for _ in range(min(length, len(self.deque_model))):
                self.deque_model.popleft()

    @rule(full=st.booleans(), held=st.booleans())
    def checkpoint(self, full: bool, held: bool) -> None:
        if not self.checkpointer.idle:
            with pytest.raises(StateError, match="still being written"):
                self.checkpointer.begin()
            return
        self.store.held = held
        self.began = (dict(self.model), list(self.list_model), list(self.deque_model))
        self.running = self.checkpointer.begin(full=full)
        # Its thread has handed over the pages, or is about to: until then nothing may differ either.
        if not held:
            self.published()

    @rule()
    def written(self) -> None:
        """Let the store write what is waiting."""
        if self.running is not None:
            self.until_submitted()
            self.store.submitted[-1].release()
            self.published()

    @rule()
    def give_up(self) -> None:
        if self.running is not None:
            self.until_submitted()
            self.running.cancel()
            with pytest.raises(CheckpointCancelled):
                self.running.result(60)
            self.running = None

    def until_submitted(self) -> None:
        while self.running.expected_start_s == 0.0 and not self.running.done:
            pass

    def published(self) -> None:
        done = self.running.result(60)
        self.saved[done.sequence] = self.began
        for gone in done.removed:
            del self.saved[gone]
        assert self.store.sequences("unit") == sorted(self.saved)
        assert len(self.saved) <= self.keep
        assert len(self.store.stored["unit", done.sequence].pages) <= self.generations_max
        self.running = None

    @rule()
    def kill(self) -> None:
        """Lose the process and its memory; waiting writes never happen."""
        if self.running is not None:
            self.until_submitted()
            self.running.cancel()
            with pytest.raises(CheckpointCancelled):
                self.running.result(60)
        self.restart()

    @invariant()
    def memory_is_bounded(self) -> None:
        if hasattr(self, "pages") and self.checkpointer.idle:
            held = sum(each.memory_bytes for each in (self.counts, self.list, self.deque))
            assert self.pages.memory_bytes == held

    def teardown(self) -> None:
        if hasattr(self, "pages"):
            self.check()
            if self.running is not None:
                self.running.cancel()
            self.checkpointer.close()


TestOperator = Operator.TestCase
TestOperator.settings = settings(max_examples=often(16, 40), stateful_step_count=25, deadline=None)


def test_page_is_cloned_once_when_it_changes_before_it_is_written() -> None:
    pages, store = manager(), MemoryStore()
    counts = count_map(pages)
    counts.add_at(np.arange(5000), 1)
    checkpointer = Checkpointer(pages, store, "unit")
    store.held = True
    running = checkpointer.begin()
    before = pages.memory_bytes
    for _ in range(3):
        counts.add_at(np.arange(5000), 1)
    written = counts.memory_bytes // PAGE - 1
    # All except the Super Page, which no update changes.
    assert pages.clones == written
    assert pages.memory_bytes == before + written * PAGE
    while not store.submitted:
        pass
    store.submitted[0].release()
    running.result(60)
    assert pages.memory_bytes == before
    counts.add_at(np.arange(5000), 1)
    assert pages.clones == written
    recovered = manager()
    Checkpointer(recovered, store, "unit").load()
    assert content(count_map(recovered)) == dict.fromkeys(range(5000), 1)


def test_checkpoint_writes_only_pages_that_changed_and_refers_to_the_others() -> None:
    pages, store = manager(), MemoryStore()
    counts, numbers = count_map(pages), List.create(pages.page_set("numbers"), NUMBERS)
    counts.add_at(np.arange(50_000), 1)
    numbers.extend_batch(np.arange(50_000))
    checkpointer = Checkpointer(pages, store, "unit", generations_max=4)
    first = checkpointer.checkpoint()
    assert first.pages_referred == 0
    assert checkpointer.checkpoint().pages_written == 0
    numbers[10] = 7
    third = checkpointer.checkpoint()
    assert (third.pages_written, third.pages_referred) == (1, first.pages_written - 1)
    for step in range(30):
        numbers[step * 1000] = step
        counts.add_at([step], 1)
        done = checkpointer.checkpoint()
        # A restore reads from few checkpoints, at the cost of little rewriting.
        assert len(store.stored["unit", done.sequence].pages) <= 4
        assert done.pages_written < 20
    recovered = manager()
    loaded = Checkpointer(recovered, store, "unit").load()
    assert loaded is not None and loaded.pages == first.pages_written
    assert content(count_map(recovered)) == content(counts)
    assert list(List.create(recovered.page_set("numbers"), NUMBERS)) == list(numbers)


def test_checkpoint_without_a_thread_is_there_when_it_was_begun() -> None:
    """For virtual time, without threads; later changes belong to the next checkpoint."""
    pages, store = manager(), MemoryStore()
    counts = count_map(pages)
    counts.add_at(np.arange(5000), 1)
    threads = threading.enumerate()
    checkpointer = Checkpointer(pages, store, "unit", reserve=False, in_background=False)
    first = checkpointer.begin()
    assert first.done and store.sequences("unit") == [1]
    counts.add_at(np.arange(2), 1)
    assert checkpointer.begin().result(0).pages_written < first.result(0).pages_written
    assert threading.enumerate() == threads
    assert pages.clones == 0
    checkpointer.close()
    for sequence, expected in ((1, [1, 1, 1]), (2, [2, 2, 1])):
        recovered = manager()
        Checkpointer(recovered, store, "unit").load(sequence)
        assert [content(count_map(recovered))[key] for key in range(3)] == expected


def test_cancelled_checkpoint_leaves_all_that_changed_to_the_next() -> None:
    pages, store = manager(), MemoryStore()
    counts = count_map(pages)
    counts.add_at(np.arange(10_000), 1)
    checkpointer = Checkpointer(pages, store, "unit")
    first = checkpointer.checkpoint()
    counts.add_at(np.arange(10_000), 1)
    store.held = True
    running = checkpointer.begin(patience_s=30)
    with pytest.raises(CheckpointCancelled, match=r"turn is 60\.0 s away"):
        running.result(60)
    clones = pages.clones
    counts.add_at(np.arange(10_000), 1)
    assert pages.clones == clones
    store.held = False
    second = checkpointer.checkpoint()
    # The cancelled one leaves its place in the queue to the next.
    assert store.submitted[-1].instead_of is store.submitted[-2]
    assert second.pages_written == first.pages_written
    recovered = manager()
    Checkpointer(recovered, store, "unit").load()
    assert content(count_map(recovered)) == dict.fromkeys(range(10_000), 3)


def test_operator_waits_for_the_disk_when_clones_find_no_memory() -> None:
    """Memory for twice the pages does not exist: without waiting, the second half could not change."""
    pages, store = manager(count=60), MemoryStore()
    counts = count_map(pages)
    counts.add_at(np.arange(10_000), 1)
    assert 30 < counts.memory_bytes // PAGE < 60
    checkpointer = Checkpointer(pages, store, "unit")
    store.held = True
    running = checkpointer.begin()

    def write_when_all_is_used() -> None:
        wait_until(lambda: pages.memory_bytes == 60 * PAGE, "the operator has used all pages")
        store.submitted[0].release()

    disk = threading.Thread(target=write_when_all_is_used)
    disk.start()
    counts.add_at(np.arange(10_000), 1)
    disk.join()
    running.result(60)
    assert pages.clones > 0
    assert content(counts) == dict.fromkeys(range(10_000), 2)
    recovered = manager()
    Checkpointer(recovered, store, "unit").load()
    assert content(count_map(recovered)) == dict.fromkeys(range(10_000), 1)
    with pytest.raises(PagesExhausted):
        counts.add_at(np.arange(100_000), 1)


def test_memory_that_a_checkpoint_has_left_is_found_at_once() -> None:
    pages, store = manager(count=59), MemoryStore()
    raw = Raw.create(pages.page_set("raw"))
    numbers = [raw.allocate() for _ in range(29)]
    store.held = True
    running = Checkpointer(pages, store, "unit").begin()
    for number in numbers:
        raw.change(number)[0] = 1
    assert pages.memory_bytes == 59 * PAGE
    wait_until(lambda: bool(store.submitted), "the pages are handed over")
    store.submitted[0].release()
    wait_until(lambda: running.done, "it is published")
    # The manager has not handled it yet.
    assert pages.memory_bytes == 59 * PAGE
    assert len(pages.page_set("another")) == 1


def test_recovery_refuses_another_schema_and_says_how_it_differs() -> None:
    pages, store = manager(), MemoryStore()
    count_map(pages)[1] = 2
    Checkpointer(pages, store, "unit").checkpoint()

    def recovered() -> PageManager:
        again = manager()
        Checkpointer(again, store, "unit").load()
        return again

    wider = COUNTS.append(pa.field("sum", pa.float64()))
    with pytest.raises(SchemaMismatch, match=r"count: int64; asked for was .*sum: double"):
        UnorderedMap.create(recovered().page_set("counts"), wider, "key")
    with pytest.raises(SchemaMismatch, match="a UnorderedMap; asked for was List"):
        List.create(recovered().page_set("counts"), COUNTS)
    assert count_map(recovered())[1] == 2


def test_recovery_takes_page_sets_that_nobody_asked_for_along() -> None:
    pages, store = manager(), MemoryStore()
    raw = Raw.create(pages.page_set("raw"))
    raw.change(raw.allocate())[:3] = 7
    count_map(pages)[1] = 2
    Checkpointer(pages, store, "unit").checkpoint()
    second = manager()
    again = Checkpointer(second, store, "unit")
    again.load()
    count_map(second)[1] += 1
    again.checkpoint()
    third = manager()
    Checkpointer(third, store, "unit").load()
    assert third.names == ["raw", "counts"]
    assert Raw.create(third.page_set("raw")).read(1)[:4].tolist() == [7, 7, 7, 0]
    assert count_map(third)[1] == 3


def test_checkpoint_of_some_page_sets_holds_those_alone() -> None:
    pages, store = manager(), MemoryStore()
    count_map(pages)[1] = 2
    List.create(pages.page_set("list"), NUMBERS).append(3)
    Checkpointer(pages, store, "counts", page_sets=["counts"]).checkpoint()
    Checkpointer(pages, store, "list", page_sets=["list"]).checkpoint()
    recovered = manager()
    Checkpointer(recovered, store, "list").load()
    assert recovered.names == ["list"]


def test_load_says_what_is_wrong_in_one_line() -> None:
    store = MemoryStore()
    assert Checkpointer(manager(), store, "unit").load() is None
    pages = manager()
    count_map(pages)[1] = 2
    Checkpointer(pages, store, "unit").checkpoint()
    with pytest.raises(FileNotFound, match="no checkpoint 7 of unit"):
        Checkpointer(manager(), store, "unit").load(7)
    with pytest.raises(StateError, match="load before creating"):
        Checkpointer(pages, store, "unit").load()
    with pytest.raises(CheckpointDamaged, match="page_bytes=8192"):
        Checkpointer(PageManager(memory_bytes_max=1 << 20), store, "unit").load()
    with pytest.raises(PagesExhausted, match="are to be loaded"):
        Checkpointer(manager(count=1), store, "unit").load()


@pytest.mark.parametrize("name", ["", ".", "..", "../unit", "a/b"])
def test_name_that_leads_out_of_the_store_is_refused(name: str) -> None:
    with pytest.raises(BadRequest, match="cannot name checkpoints"):
        Checkpointer(manager(), MemoryStore(), name)
