"""UnorderedMap with strings and bytes, compared with a dict, through checkpoints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.long_runs import often

from peacefs.protocol.errors import PagesExhausted, RecordRefused
from peacefs.state import Checkpointer, MemoryStore, PageManager, UnorderedMap

PAGE = 8192
SCHEMA = pa.schema(
    [
        ("host", pa.string()),
        ("port", pa.int32()),
        ("count", pa.int64()),
        ("note", pa.binary()),
        ("last", pa.string()),
    ]
)


def pages(count: int = 2000) -> PageManager:
    return PageManager(page_bytes=PAGE, memory_bytes_max=count * PAGE, secret=bytes(16))


def hosts(manager: PageManager) -> UnorderedMap:
    return UnorderedMap.create(manager.page_set("hosts"), SCHEMA, ["host", "port"])


KEYS = st.tuples(
    st.sampled_from(["", "a", "ä", "host-1.example.org", "x" * 300, "zero\0", "zero"]), st.integers(0, 2)
)
NOTES = st.one_of(st.binary(max_size=20), st.integers(0, 3000).map(lambda length: b"n" * length))
VALUES = st.tuples(st.integers(0, 9), NOTES, st.text(max_size=10))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, VALUES),
        st.tuples(st.just("delete"), KEYS),
        st.tuples(st.just("upsert"), st.lists(st.tuples(KEYS, VALUES), max_size=30)),
        st.tuples(st.just("add"), st.lists(KEYS, max_size=30)),
        st.tuples(st.just("many"), st.integers(0, 300), st.integers(0, 400)),
        st.tuples(st.just("remove"), st.lists(KEYS, max_size=5), st.integers(0, 300), st.integers(0, 400)),
        st.tuples(st.just("restart")),
        st.tuples(st.just("clear")),
    ),
    max_size=20,
)


def columns_of(rows: list[tuple[Any, ...]], names: list[str]) -> dict[str, list[Any]]:
    return {name: [row[number] for row in rows] for number, name in enumerate(names)}


@settings(max_examples=often(24, 60), deadline=None)
@given(STEPS)
def test_text_map_holds_what_a_dict_holds(steps: list[tuple[Any, ...]]) -> None:
    manager, store = pages(), MemoryStore()
    held, model = hosts(manager), dict[tuple[str, int], tuple[int, bytes, str]]()
    checkpointer = Checkpointer(manager, store, "unit")
    for step in steps:
        match step:
            case ("put", key, value):
                held[key] = model[key] = value
            case ("delete", key):
                assert held.pop(key, None) == model.pop(key, None)
            case ("upsert", pairs):
                keys = columns_of([key for key, _ in pairs], ["host", "port"])
                held.upsert(keys, columns_of([value for _, value in pairs], ["count", "note", "last"]))
                model.update(pairs)
            case ("add", keys):
                new = held.aggregate(columns_of(keys, ["host", "port"]), {"count": ("add", 2)})
                assert new.tolist() == [at for at, key in enumerate(keys) if key not in {*model, *keys[:at]}]
                for key in keys:
                    count, note, last = model.get(key, (0, b"", ""))
                    model[key] = (count + 2, note, last)
            case ("many", start, length):
                rows = [(f"host-{number}", 80) for number in range(start, start + length)]
                values = [(number, b"note %d" % number * 5, "") for number in range(length)]
                held.upsert(columns_of(rows, ["host", "port"]), columns_of(values, ["count", "note", "last"]))
                model.update(zip(rows, values, strict=True))
            case ("remove", keys, start, length):
                wanted = [*keys, *((f"host-{number}", 80) for number in range(start, start + length))]
                removed = held.remove(columns_of(wanted, ["host", "port"])).tolist()
                assert removed == [model.pop(key, None) is not None for key in wanted]
            case ("restart",):
                checkpointer.checkpoint()
                manager = pages()
                checkpointer = Checkpointer(manager, store, "unit")
                checkpointer.load()
                held = hosts(manager)
            case _:
                held.clear()
                model.clear()
        assert len(held) == len(model)
    scanned = [row for batch in held.scan() for row in batch.to_pylist()]
    assert len(scanned) == len(model)
    assert {(row["host"], row["port"]): (row["count"], row["note"], row["last"]) for row in scanned} == model
    asked = [*list(model)[:40], ("nobody", 1)]
    found = held.find(columns_of(asked, ["host", "port"]))
    assert found.column("last").to_pylist() == [model[key][2] if key in model else None for key in asked]
    assert dict(held.items()) == model


def test_text_map_gives_back_the_room_of_texts_that_were_replaced() -> None:
    manager = pages()
    held = hosts(manager)
    keys = {"host": [f"host-{number}" for number in range(2000)], "port": np.zeros(2000, np.int32)}
    used = []
    for round_ in range(30):
        notes = [b"%d" % round_ * (1 + (number + round_) % 40) for number in range(2000)]
        held.upsert(keys, {"count": np.arange(2000), "note": notes, "last": ["x"] * 2000})
        used.append(held.memory_bytes)
    assert max(used[10:]) < 1.3 * max(used[3:10])
    assert held["host-7", 0] == (7, b"29" * (1 + 36), "x")
    assert held.remove(keys).all()
    assert held.memory_bytes < used[0] and not list(held.scan())


def test_text_map_refuses_what_it_cannot_hold_before_it_changes_anything() -> None:
    held = hosts(pages())
    held["a", 1] = (1, b"", "")
    fine = {"count": [1], "note": [b""], "last": [""]}
    for keys, values in (
        ({"host": [None], "port": [1]}, fine),
        ({"host": [7], "port": [1]}, fine),
        ({"host": ["b"]}, fine),
        ({"host": ["b"], "port": [1]}, fine | {"note": [b"x" * PAGE]}),
        ({"host": ["b"], "port": [1]}, fine | {"last": [None]}),
        ({"host": ["b", "c"], "port": [1, 2]}, fine),
        ({"host": pa.array([b"b"]), "port": [1]}, fine),
    ):
        with pytest.raises(RecordRefused):
            held.upsert(keys, values)
    with pytest.raises(RecordRefused, match="column last holds texts"):
        held.add_at({"host": ["a"], "port": [1]}, 1, "last")
    with pytest.raises(RecordRefused, match=r"one of count, note, last$"):
        held.add_at({"host": ["a"], "port": [1]}, 1)
    assert dict(held.items()) == {("a", 1): (1, b"", "")}


def test_text_map_takes_any_arrow_array_of_strings() -> None:
    held = UnorderedMap.create(
        pages().page_set("words"), pa.schema([("word", pa.string()), ("n", pa.int64())]), "word"
    )
    words = pa.array(["to", "be", "or", "not", "to", "be"])
    for given_words in (words, words.slice(2), words.dictionary_encode(), words.cast(pa.large_string()), ["to"]):
        held.add_at(given_words, 1)
    held.add_at(pa.chunked_array([["to"], ["be"]]), 1)
    assert dict(held.items()) == {"to": 9, "be": 8, "or": 4, "not": 4}
    # With the same secret the order is the same again.
    again = UnorderedMap.create(
        pages().page_set("words"), pa.schema([("word", pa.string()), ("n", pa.int64())]), "word"
    )
    again.upsert(list(held), list(held.values()))
    assert list(again) == list(held)


def test_text_map_that_finds_no_memory_is_whole() -> None:
    manager = pages(count=12)
    held = hosts(manager)
    names = [f"host-{number}" for number in range(20_000)]
    with pytest.raises(PagesExhausted):
        held.add_at({"host": names, "port": np.zeros(20_000, np.int32)}, 1, "count")
    assert len(held) > 100
    assert {host for host, _ in held} == {f"host-{number}" for number in range(len(held))}
