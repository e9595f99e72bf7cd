"""UnorderedMap compared with a dict, after random single and batch operations."""

from __future__ import annotations

import datetime
import decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.long_runs import often

from peacefs.protocol.errors import PagesExhausted, RecordRefused
from peacefs.state import PageManager, UnorderedMap

PAGE = 8192
COUNTS = pa.schema([("key", pa.int64()), ("count", pa.int64())])


def pages(count: int = 1000) -> PageManager:
    return PageManager(page_bytes=PAGE, memory_bytes_max=count * PAGE)


def counts(count: int = 1000) -> UnorderedMap:
    return UnorderedMap.create(pages(count).page_set("counts"), COUNTS, "key")


def content(held: UnorderedMap) -> dict[Any, Any]:
    return {row["key"]: row["count"] for batch in held.scan() for row in batch.to_pylist()}


# Few keys, so that they repeat; zero, because an empty slot is zero; the limits of the type.
KEYS = st.one_of(st.integers(-3, 40), st.sampled_from([2**63 - 1, -(2**63), 2**32]))
NUMBERS = st.integers(-(2**40), 2**40)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, NUMBERS),
        st.tuples(st.just("delete"), KEYS),
        st.tuples(st.just("upsert"), st.lists(st.tuples(KEYS, NUMBERS), max_size=40)),
        st.tuples(st.just("upsert range"), st.integers(0, 3000), st.integers(1, 2000)),
        st.tuples(st.just("add"), st.lists(st.tuples(KEYS, NUMBERS), max_size=40)),
        st.tuples(st.just("remove"), st.lists(KEYS, max_size=40)),
        st.tuples(st.just("remove range"), st.integers(0, 3000), st.integers(1, 2000)),
        st.tuples(st.just("clear")),
    ),
    max_size=20,
)


@settings(max_examples=often(24, 60), deadline=None)
@given(STEPS)
def test_map_holds_what_a_dict_holds(steps: list[tuple[Any, ...]]) -> None:
    held, model = counts(), dict[int, int]()
    for step in steps:
        match step:
            case ("put", key, number):
                held[key] = model[key] = number
            case ("delete", key):
                assert (held.pop(key, None)) == model.pop(key, None)
            case ("upsert", pairs):
                held.upsert([key for key, _ in pairs], [number for _, number in pairs])
                model.update(pairs)
            case ("upsert range", start, length):
                keys = np.arange(start, start + length)
                held.upsert(keys, keys * 3)
                model.update((int(key), int(key) * 3) for key in keys)
            case ("add", pairs):
                keys, numbers = [key for key, _ in pairs], [number for _, number in pairs]
                new = held.aggregate(keys, {"count": ("add", numbers)})
                assert new.tolist() == [at for at, key in enumerate(keys) if key not in {*model, *keys[:at]}]
                for key, number in pairs:
                    model[key] = model.get(key, 0) + number
            case ("remove", keys):
                removed = held.remove(keys).tolist()
                assert removed == [model.pop(key, None) is not None for key in keys]
            case ("remove range", start, length):
                held.remove(np.arange(start, start + length))
                for key in range(start, start + length):
                    model.pop(key, None)
            case _:
                held.clear()
                model.clear()
        assert len(held) == len(model)
    assert content(held) == model
    asked = [*sorted(model)[:50], -77]
    found = held.find(asked)
    assert found.column("found").to_pylist() == [True] * (len(asked) - 1) + [False]
    assert found.column("count").to_pylist() == [model.get(key) for key in asked]
    assert [key in held for key in asked] == [key in model for key in asked]


def test_map_grows_by_a_page_at_a_time_and_keeps_its_pages_more_than_half_full() -> None:
    held = UnorderedMap.create(PageManager(memory_bytes_max=1 << 30).page_set("counts"), COUNTS, "key")
    rng = np.random.default_rng(1)
    used = []
    for step in range(40):
        held.add_at(rng.permutation(10_000) + step * 10_000, 1)
        used.append(held.memory_bytes)
    assert len(held) == 400_000
    # No step takes much longer than its share, unlike in a table that doubles.
    assert max(after - before for before, after in pairwise(used[5:])) < 10_000 * 16 * 3
    assert 400_000 * 16 / held.memory_bytes > 0.5


def test_map_aggregates_several_columns_of_several_types_at_once() -> None:
    schema = pa.schema(
        [
            ("host", pa.int32()),
            ("minute", pa.timestamp("s")),
            ("count", pa.int64()),
            ("low", pa.float32()),
            ("high", pa.int16()),
            ("last", pa.uint8()),
        ]
    )
    held = UnorderedMap.create(pages().page_set("hosts"), schema, ["host", "minute"])
    minutes = np.array([60, 60, 120], "M8[s]")
    for low, high in ((3.5, 7), (1.5, 9)):
        held.aggregate(
            (np.array([1, 1, 2], np.int32), minutes),
            {
                "count": ("add", 1),
                "low": ("min", np.full(3, low, np.float32)),
                "high": ("max", np.array([high, -high, -5], np.int16)),
                "last": ("put", np.array([1, 2, 3], np.uint8)),
            },
        )
    first, second = datetime.datetime(1970, 1, 1, 0, 1), datetime.datetime(1970, 1, 1, 0, 2)
    assert dict(held.items()) == {(1, first): (4, 1.5, 9, 2), (2, second): (2, 1.5, -5, 3)}


def test_map_keeps_all_types_of_fixed_width() -> None:
    fields: dict[str, tuple[pa.DataType, Any]] = {
        "flag": (pa.bool_(), True),
        "day": (pa.date32(), datetime.date(2026, 2, 3)),
        "price": (pa.decimal128(12, 2), decimal.Decimal("-17.25")),
        "digest": (pa.binary(5), b"abcde"),
        "ratio": (pa.float64(), -0.5),
        "span": (pa.duration("us"), datetime.timedelta(microseconds=7)),
        "huge": (pa.uint64(), 2**64 - 1),
    }
    schema = pa.schema([("id", pa.uint8()), *((name, kind) for name, (kind, _) in fields.items())])
    held = UnorderedMap.create(pages().page_set("all"), schema, "id")
    value = tuple(each for _, each in fields.values())
    held[200] = value
    batch = pa.RecordBatch.from_pylist([{"id": 7, **{name: each for name, (_, each) in fields.items()}}], schema)
    held.upsert(batch, batch)
    assert held[200] == held[7] == value
    (scanned,) = held.scan()
    assert scanned.schema == schema
    assert {row["id"] for row in scanned.to_pylist()} == {7, 200}


def test_map_takes_equal_floats_for_one_key() -> None:
    schema = pa.schema([("key", pa.float64()), ("count", pa.int64())])
    held = UnorderedMap.create(pages().page_set("floats"), schema, "key")
    held.add_at(np.array([0.0, -0.0, np.nan, -np.nan, 1.5]), 1)
    held[-0.0] += 1
    assert len(held) == 3
    assert held[0.0] == 3 and held[float("nan")] == 2


def test_map_refuses_what_it_cannot_hold_before_it_changes_anything() -> None:
    held = counts()
    held[1] = 1
    for keys, values in (
        ([1, None], [1, 2]),
        ([1, 2], [1, None]),
        ([1, 2], [1]),
        (["a"], [1]),
        ([2**63], [1]),
        ([1.5], [1]),
        ([1], [1.5]),
        (np.array([1.5]), np.array([1])),
        (np.array([[1]]), np.array([1])),
    ):
        with pytest.raises(RecordRefused):
            held.upsert(keys, values)
    with pytest.raises(RecordRefused, match="no column sum"):
        held.aggregate([1], {"sum": ("add", 1)})
    with pytest.raises(RecordRefused, match=r"given 1\.5"):
        held.add_at([1], 1.5)
    with pytest.raises(KeyError):
        del held[2]
    assert dict(held.items()) == {1: 1}


def test_map_that_finds_no_memory_says_how_far_it_came() -> None:
    held = counts(count=6)
    with pytest.raises(PagesExhausted, match="all 6 pages of 8192 bytes are used") as raised:
        held.add_at(np.arange(100_000), 1)
    assert len(held) == raised.value.applied > 1000
    assert content(held) == dict.fromkeys(range(raised.value.applied), 1)


def test_map_survives_keys_that_all_hash_to_one_bucket() -> None:
    """Records of 2,000 bytes, four per page, so most buckets overflow into chains."""
    schema = pa.schema([("key", pa.int64()), ("blob", pa.binary(200))])
    held = UnorderedMap.create(pages(4000).page_set("blobs"), schema, "key")
    keys = np.arange(20_000)
    blobs = pa.array([b"%0200d" % key for key in range(20_000)], pa.binary(200))
    held.upsert(keys, blobs)
    assert held.remove(keys[::2]).all()
    found = held.find(keys)
    assert found.column("found").to_pylist() == [bool(key % 2) for key in range(20_000)]
    assert found.column("blob")[19_999].as_py() == b"%0200d" % 19_999
