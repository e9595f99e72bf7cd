"""OrderedMap compared with a sorted dict, through checkpoints."""

from __future__ import annotations

import datetime
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.long_runs import often

from peacefs.protocol.errors import PagesExhausted, RecordRefused
from peacefs.state import Checkpointer, MemoryStore, OrderedMap, PageManager

PAGE = 8192
SCHEMA = pa.schema([("key", pa.int64()), ("a", pa.int64()), ("b", pa.int16())])
KEYS = st.one_of(st.integers(-50, 5000), st.sampled_from([2**63 - 1, -(2**63)]))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, st.integers(-9, 9)),
        st.tuples(st.just("delete"), KEYS),
        st.tuples(st.just("upsert"), st.lists(st.tuples(KEYS, st.integers(-9, 9)), max_size=40)),
        st.tuples(st.just("range"), st.integers(0, 4000), st.integers(0, 3000), st.sampled_from([1, 1, 3])),
        st.tuples(st.just("remove"), st.integers(0, 4000), st.integers(0, 3000)),
        st.tuples(st.just("below"), KEYS),
        st.tuples(st.just("restart")),
        st.tuples(st.just("clear")),
    ),
    max_size=20,
)


def manager(count: int = 1000) -> PageManager:
    return PageManager(page_bytes=PAGE, memory_bytes_max=count * PAGE)


def ordered(pages: PageManager) -> OrderedMap:
    return OrderedMap.create(pages.page_set("ordered"), SCHEMA, "key")


def rows_of(held: OrderedMap, *bounds: Any) -> list[tuple[int, tuple[int, int]]]:
    return [
        (row["key"], (row["a"], row["b"]))
        for batch in held.scan(*bounds, batch_records=300)
        for row in batch.to_pylist()
    ]


@settings(max_examples=often(24, 60), deadline=None)
@given(STEPS, KEYS, KEYS)
def test_ordered_map_holds_what_a_sorted_dict_holds(steps: list[tuple[Any, ...]], start: int, stop: int) -> None:
    pages, store = manager(), MemoryStore()
    held, model = ordered(pages), dict[int, tuple[int, int]]()
    checkpointer = Checkpointer(pages, store, "unit")
    for step in steps:
        match step:
            case ("put", key, number):
                held[key] = model[key] = (number, number)
            case ("delete", key):
                assert held.pop(key, None) == model.pop(key, None)
            case ("upsert", pairs):
                keys, numbers = [key for key, _ in pairs], [number for _, number in pairs]
                held.upsert(keys, {"a": numbers, "b": numbers})
                model.update((key, (number, number)) for key, number in pairs)
            case ("range", begin, length, by):
                keys_array = np.arange(begin, begin + length, by)
                np.random.default_rng(length).shuffle(keys_array)
                held.upsert(keys_array, {"a": keys_array, "b": (keys_array % 7).astype(np.int16)})
                model.update((int(key), (int(key), int(key) % 7)) for key in keys_array)
            case ("remove", begin, length):
                wanted = [*range(begin, begin + length), begin]
                removed = held.remove(wanted).tolist()
                assert removed == [model.pop(key, None) is not None for key in wanted]
            case ("below", bound):
                gone = [key for key in model if key < bound]
                assert held.remove_below(bound) == len(gone)
                for key in gone:
                    del model[key]
            case ("restart",):
                checkpointer.checkpoint()
                pages = manager()
                checkpointer = Checkpointer(pages, store, "unit")
                checkpointer.load()
                held = ordered(pages)
            case _:
                held.clear()
                model.clear()
        assert len(held) == len(model)
    assert rows_of(held) == sorted(model.items())
    assert rows_of(held, start, stop) == sorted(item for item in model.items() if start <= item[0] < stop)
    assert rows_of(held, start) == sorted(item for item in model.items() if start <= item[0])
    asked = [*list(model)[:40], -77]
    assert held.find(asked).column("a").to_pylist() == [model[key][0] if key in model else None for key in asked]
    if model:
        assert (held.first(), held.last()) == (min(model), max(model))


@pytest.mark.parametrize(
    ("kind", "ascending"),
    [
        (pa.float64(), [-math.inf, -1.5, -5e-324, 0.0, 5e-324, 2.0, math.inf]),
        (pa.float32(), [-math.inf, -1.5, 0.0, 0.25, math.inf]),
        (pa.uint64(), [0, 1, 2**63 - 1, 2**63, 2**64 - 1]),
        (pa.int8(), [-128, -1, 0, 127]),
        (pa.date32(), [datetime.date(1960, 1, 1), datetime.date(2026, 1, 1)]),
        (pa.timestamp("ms"), [datetime.datetime(1960, 1, 1), datetime.datetime(2026, 1, 1)]),
    ],
    ids=str,
)
def test_ordered_map_orders_keys_as_their_type_does(kind: pa.DataType, ascending: list[Any]) -> None:
    held = OrderedMap.create(
        manager().page_set("ordered"), pa.schema([("key", kind), ("place", pa.int64())]), "key"
    )
    held.upsert(ascending[::-1], list(range(len(ascending)))[::-1])
    assert list(held) == ascending
    assert list(held.values()) == list(range(len(ascending)))


def test_ordered_map_refuses_keys_without_an_order_in_words() -> None:
    for key in (pa.string(), pa.binary(16)):
        with pytest.raises(RecordRefused):
            OrderedMap.create(manager().page_set("ordered"), pa.schema([("key", key), ("a", pa.int64())]), "key")
    with pytest.raises(KeyError):
        ordered(manager()).first()


def test_ordered_map_that_finds_no_memory_is_whole() -> None:
    held = ordered(manager(count=8))
    put = 0
    for start in range(0, 1000, 100):
        held.upsert(np.arange(start, start + 100), {"a": np.arange(100), "b": np.zeros(100, np.int16)})
        put = start + 100
    with pytest.raises(PagesExhausted):
        held.upsert(np.arange(10_000), {"a": np.arange(10_000), "b": np.zeros(10_000, np.int16)})
    assert list(held)[:put] == list(range(put)) and len(held) == len(list(held))
