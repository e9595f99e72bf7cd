"""List, Queue and Deque compared with Python's own, after random operations."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.long_runs import often

from peacefs.protocol.errors import RecordRefused, StateError
from peacefs.state import Deque, List, PageManager, Queue, Raw

PAGE = 8192
SCHEMA = pa.schema([("number", pa.int64())])
# A page holds 1,016 records of one word, so runs of this length cross pages.
RUN = st.integers(0, 2500)
INDEX = st.integers(-3000, 3000)


def page_set(name: str = "set") -> Any:
    return PageManager(page_bytes=PAGE, memory_bytes_max=2000 * PAGE).page_set(name)


def numbers(batch: pa.RecordBatch) -> list[int]:
    return batch.column(0).to_pylist()


LIST_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("extend"), RUN),
        st.tuples(st.just("append"), st.integers()),
        st.tuples(st.just("insert"), INDEX, st.integers()),
        st.tuples(st.just("set"), INDEX, st.integers()),
        st.tuples(st.just("put"), st.integers(0, 3000), RUN),
        st.tuples(st.just("delete"), INDEX),
        st.tuples(st.just("delete slice"), INDEX, INDEX, st.sampled_from([1, 1, 7])),
        st.tuples(st.just("assign slice"), INDEX, INDEX, st.integers(0, 1200)),
        st.tuples(st.just("clear")),
    ),
    max_size=15,
)


@settings(max_examples=often(24, 60), deadline=None)
@given(LIST_STEPS)
def test_list_holds_what_a_list_holds(steps: list[tuple[Any, ...]]) -> None:
    held, model = List.create(page_set(), SCHEMA), list[int]()
    for number, step in enumerate(steps):
        match step:
            case ("extend", length):
                held.extend_batch(np.arange(length) + number * 10_000)
                model.extend(range(number * 10_000, number * 10_000 + length))
            case ("append", value):
                held.append(value % 2**60)
                model.append(value % 2**60)
            case ("insert", at, value):
                held.insert(at, value % 2**60)
                model.insert(at, value % 2**60)
            case ("set", at, value) if -len(model) <= at < len(model):
                held[at] = model[at] = value % 2**60
            case ("put", at, length) if at + length <= len(model):
                held.put_batch(at, np.arange(length))
                model[at : at + length] = range(length)
            case ("delete", at) if -len(model) <= at < len(model):
                del held[at], model[at]
            case ("delete slice", start, stop, by):
                del held[start:stop:by], model[start:stop:by]
            case ("assign slice", start, stop, length):
                held[start:stop] = range(length)
                model[start:stop] = range(length)
            case ("clear",):
                held.clear()
                model.clear()
        assert len(held) == len(model)
    assert list(held) == model
    assert held[5:900:7] == model[5:900:7]
    assert numbers(held.slice_batch(-700, -3)) == model[-700:-3]
    assert [each for batch in held.scan(100) for each in numbers(batch)] == model
    if model:
        places = [0, -1, len(model) // 2, len(model) - 1, 0]
        assert numbers(held.take_batch(places)) == [model[place] for place in places]


@settings(max_examples=often(24, 60), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["append", "appendleft", "pop", "popleft", "extend", "extendleft", "popn", "popleftn"]
            ),
            RUN,
        ),
        max_size=25,
    )
)
def test_deque_holds_what_a_deque_holds(steps: list[tuple[str, int]]) -> None:
    held, model = Deque.create(page_set(), SCHEMA), deque[int]()
    for step, length in steps:
        run = list(range(length))
        match step:
            case "append":
                held.append(length)
                model.append(length)
            case "appendleft":
                held.appendleft(length)
                model.appendleft(length)
            case "pop" | "popleft" if model:
                assert getattr(held, step)() == getattr(model, step)()
            case "extend":
                held.extend_batch(run)
                model.extend(run)
            case "extendleft":
                held.extendleft_batch(run)
                model.extendleft(reversed(run))
            case "popn":
                taken = [model.pop() for _ in range(min(length, len(model)))]
                assert numbers(held.pop_batch(length)) == taken[::-1]
            case "popleftn":
                assert numbers(held.popleft_batch(length)) == [
                    model.popleft() for _ in range(min(length, len(model)))
                ]
        assert len(held) == len(model)
    assert list(held) == list(model)


def test_queue_gives_pages_back_that_were_read() -> None:
    pages = PageManager(page_bytes=PAGE, memory_bytes_max=10 * PAGE)
    held = Queue.create(pages.page_set("queue"), SCHEMA)
    for start in range(0, 100_000, 1000):
        held.push_batch(np.arange(start, start + 1000))
        assert held.peek() == start
        assert numbers(held.peek_batch(2)) == [start, start + 1]
        assert held.pop() == start
        assert numbers(held.pop_batch(5000)) == list(range(start + 1, start + 1000))
    assert pages.memory_bytes <= 4 * PAGE
    with pytest.raises(IndexError):
        held.pop()


def test_list_refuses_positions_that_are_not_there() -> None:
    held = List.create(page_set(), SCHEMA)
    held.extend([1, 2, 3])
    for wrong in (3, -4):
        with pytest.raises(IndexError):
            held[wrong]
        with pytest.raises(IndexError):
            held.take_batch([wrong])
    with pytest.raises(IndexError):
        held.put_batch(2, np.arange(2))
    with pytest.raises(RecordRefused):
        held.append("three")
    assert list(held) == [1, 2, 3]


def test_raw_pages_are_the_users_own() -> None:
    held = Raw.create(page_set())
    first, second = held.allocate(), held.allocate()
    held.change(first)[:5] = np.frombuffer(b"hello", np.uint8)
    held.set_link(first, second)
    assert held.read(first)[:5].tobytes() == b"hello" and held.link(first) == second
    assert not held.read(second).any() and len(held.read(second)) == held.room
    with pytest.raises(ValueError, match="read-only"):
        held.read(first)[0] = 1
    held.release(first)
    with pytest.raises(StateError, match="no page"):
        held.read(first)
    assert held.pages == [second]
    # Its number and memory are reused, and zeroed.
    assert not held.read(held.allocate()).any()
