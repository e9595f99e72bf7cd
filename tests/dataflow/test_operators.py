"""Operators give the promised rows, however the input is split into batches and wherever they restart."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from simulation.seeds import seeds
from support.long_runs import often
from support.unit_states import States

from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.model.operator import Operator
from peacefs.dataflow.model.stream_type import TIME
from peacefs.dataflow.query.network import OperatorNode
from peacefs.dataflow.query.streams import Stream
from peacefs.dataflow.unit_state.operator_state import OperatorState
from peacefs.dataflow.unit_state.paged_state import PagedState

_SECOND = 1_000_000
_SCHEMA = pa.schema([("key", pa.string()), ("at", TIME), ("value", pa.int64())])
Row = tuple[Any, ...]
#: (port, row) in the order of arrival
Arrivals = Sequence[tuple[int, Row]]
Written = Callable[[Stream, Stream], Stream]


def written_as(written: Written) -> Written:
    return written


def node_of(written: Written) -> OperatorNode:
    query = Query("q")
    left = query.source("left", _SCHEMA, time="at")
    right = query.source("right", _SCHEMA.set(2, pa.field("other", pa.int64())), time="at")
    right.sink("right")
    left.sink("left")
    written(left, right).sink("out")
    return query.network().operators[-1]


def start(node: OperatorNode, state: PagedState) -> Operator:
    return node.specification.start(node.input_types, OperatorState(state, node.name))


def run(
    written: Written, arrivals: Arrivals, *, chance: random.Random | None = None, end: bool = True
) -> list[Row]:
    """Run the last operator. With `chance`, use random batches, and store and load the state in between."""
    node = node_of(written)
    states = States()
    state = states.begin()
    operator = start(node, state)
    shown: list[Row] = []
    at = 0
    while at < len(arrivals):
        port = arrivals[at][0]
        most = chance.randint(1, 9) if chance else len(arrivals)
        rows = []
        while at < len(arrivals) and arrivals[at][0] == port and len(rows) < most:
            rows.append(arrivals[at][1])
            at += 1
        shown += rows_of(operator.process(port, batch_of(node, port, rows)))
        if chance and chance.random() < 0.2:
            state = states.store_and_load(state)
            operator = start(node, state)
    for port in range(len(node.inputs)):
        shown += rows_of(operator.end(port)) if end else []
    return shown


def batch_of(node: OperatorNode, port: int, rows: Sequence[Row]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True))
    schema = node.input_types[port].schema
    arrays = [
        pa.array(list(values), pa.int64()).cast(TIME) if field.type == TIME else pa.array(list(values), field.type)
        for field, values in zip(schema, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def rows_of(batches: Any) -> list[Row]:
    shown: list[Row] = []
    for batch in batches:
        columns = [
            (column.cast(pa.int64()) if column.type == TIME else column).to_pylist() for column in batch.columns
        ]
        shown += zip(*columns, strict=True)
    return shown


def left(*rows: Row) -> Arrivals:
    return [(0, (key, int(at * _SECOND), value)) for key, at, value in rows]


def counted(rows: pa.RecordBatch, state: MutableMapping[Any, Any]) -> pa.RecordBatch:
    """Give each key's rows numbers."""
    numbers = []
    for key in rows.column("key").to_pylist():
        state[key] = state.get(key, 0) + 1
        numbers.append(state[key])
    return rows.set_column(2, "value", pa.array(numbers, pa.int64()))


_EVERY: dict[str, Written] = {
    "filter": lambda a, b: a.filter(F.col("value") > 50),
    "select": lambda a, b: a.select("at", doubled=F.col("value") * 2),
    "map": lambda a, b: a.map(lambda rows: rows),
    "flat map": lambda a, b: a.flat_map(lambda rows: rows.take([i for i in range(len(rows)) for _ in range(2)])),
    "tumbling": lambda a, b: a.key_by("key").window("10s").aggregate(F.count(), F.sum("value"), F.mean("value")),
    "sliding": lambda a, b: a.key_by("key").window("10s", every="3s").aggregate(F.count(), F.min("value")),
    "hopping": lambda a, b: a.key_by("key").window("3s", every="10s").aggregate(F.count(), F.max("value")),
    "late": lambda a, b: a.window("10s", every="5s", lateness="4s").aggregate(F.count(), F.sum("value")),
    "count windows": lambda a, b: a.key_by("key").count_window(4, every=3).aggregate(F.count(), F.sum("value")),
    "count hops": lambda a, b: a.count_window(2, every=5).aggregate(F.sum("value")),
    "sort": lambda a, b: a.sort(within="3s"),
    "join": lambda a, b: a.key_by("key").join(b.key_by("key"), within="4s"),
    "resample": lambda a, b: a.key_by("key").resample("value", every="2s"),
    "resample on a line": lambda a, b: a.key_by("key").resample("value", every="2s", method="linear"),
    "process": lambda a, b: a.process(counted),
}


def arrivals_under(chance: random.Random, ports: int) -> Arrivals:
    clocks = [0.0] * ports
    arrivals = []
    for _ in range(often(70, 120)):
        port = chance.randrange(ports)
        clocks[port] += chance.choice([0, 0.5, 1, 1, 2, 15 if chance.random() < 0.05 else 1])
        at = max(clocks[port] - chance.choice([0, 0, 0, 1, 2, 6]), 0)
        arrivals.append((port, (chance.choice(["a", "b", "c", None]), int(at * _SECOND), chance.randint(0, 100))))
    return arrivals


@pytest.mark.parametrize("seed", seeds(6))
@pytest.mark.parametrize("which", _EVERY)
def test_operator_does_not_depend_on_batches_or_restarts(which: str, seed: int) -> None:
    """Every technique that replays relies on this: other batches, and state that was stored and loaded."""
    chance = random.Random(seed)
    arrivals = arrivals_under(chance, len(node_of(_EVERY[which]).inputs))
    whole = run(_EVERY[which], arrivals)
    assert whole
    for _ in range(3 if "PEACEFS_SEEDS" in os.environ else 1):
        assert run(_EVERY[which], arrivals, chance=chance) == whole


@pytest.mark.parametrize("seed", seeds(10))
def test_join_does_not_depend_on_how_its_inputs_interleave(seed: int) -> None:
    """HA calls it repeatable: the same rows on each input give the same output."""
    chance = random.Random(seed)
    arrivals = arrivals_under(chance, 2)
    sides = [[one for one in arrivals if one[0] == port] for port in (0, 1)]
    mixed: list[tuple[int, Row]] = []
    while any(sides):
        side = chance.choice([side for side in sides if side])
        mixed.append(side.pop(0))
    assert run(_EVERY["join"], mixed) == run(_EVERY["join"], arrivals)


def test_windows_are_emitted_by_the_row_that_is_past_their_end() -> None:
    written = written_as(
        lambda a, b: a.key_by("key").window("10s", every="5s").aggregate(F.count(), F.sum("value"))
    )
    rows = left(("b", 1, 1), ("a", 4, 2), ("a", 7, 3), ("a", 9.9, 4))
    assert run(written, rows, end=False) == [
        ("a", -5 * _SECOND, 5 * _SECOND, 1, 2),
        ("b", -5 * _SECOND, 5 * _SECOND, 1, 1),
    ]
    rows += left(("c", 10, 5))
    assert run(written, rows, end=False)[2:] == [("a", 0, 10 * _SECOND, 3, 9), ("b", 0, 10 * _SECOND, 1, 1)]


def test_late_row_is_left_out_once_its_window_was_emitted() -> None:
    written = written_as(lambda a, b: a.window("10s").aggregate(F.count()))
    rows = left(("a", 1, 1), ("a", 12, 1), ("a", 3, 1), ("a", 13, 1))
    assert run(written, rows) == [(0, 10 * _SECOND, 1), (10 * _SECOND, 20 * _SECOND, 2)]
    lenient = written_as(lambda a, b: a.window("10s", lateness="5s").aggregate(F.count()))
    assert run(lenient, rows) == [(0, 10 * _SECOND, 2), (10 * _SECOND, 20 * _SECOND, 2)]


def test_mean_and_extremes_pass_over_nulls() -> None:
    written = written_as(
        lambda a, b: a.window("10s").aggregate(F.count(), F.mean("value"), F.min("value"), F.sum("value"))
    )
    assert run(written, left(("a", 1, 4), ("a", 2, None), ("a", 3, 8)))[0][2:] == (3, 6.0, 4, 12)
    assert run(written, left(("a", 1, None)))[0][2:] == (1, None, None, None)


def test_window_with_a_timeout_is_emitted_when_nothing_comes() -> None:
    node = node_of(lambda a, b: a.window("10s", timeout="2s").aggregate(F.count()))
    operator = start(node, States().begin())
    operator.process(0, batch_of(node, 0, [("a", 1 * _SECOND, 1)]))
    assert rows_of(operator.on_time(100 * _SECOND)) == []
    assert rows_of(operator.on_time(101 * _SECOND)) == []
    assert rows_of(operator.on_time(102 * _SECOND)) == [(0, 10 * _SECOND, 1)]
    assert rows_of(operator.on_time(105 * _SECOND)) == []
    late = rows_of(operator.process(0, batch_of(node, 0, [("a", 2 * _SECOND, 1), ("a", 25 * _SECOND, 1)])))
    assert late == [], "the window that the timeout emitted is not emitted again"


def test_count_window_with_a_timeout_is_emitted_when_nothing_comes() -> None:
    node = node_of(lambda a, b: a.key_by("key").count_window(3, timeout="2s").aggregate(F.sum("value")))
    operator = start(node, States().begin())
    operator.process(0, batch_of(node, 0, [("a", 1, 1), ("a", 2, 1), ("b", 3, 5)]))
    operator.on_time(0)
    assert rows_of(operator.on_time(2 * _SECOND)) == [("a", 2, 2), ("b", 3, 5)]


def test_join_pairs_rows_within_the_window() -> None:
    rows = [
        (0, ("a", 1 * _SECOND, 10)),
        (0, ("b", 2 * _SECOND, 20)),
        (1, ("a", 3 * _SECOND, 30)),
        (1, ("a", 6 * _SECOND, 40)),
        (0, ("a", 9 * _SECOND, 50)),
    ]
    written = written_as(lambda a, b: a.key_by("key").join(b.key_by("key"), within="3s"))
    # Each pair has the later of its two times.
    assert run(written, rows) == [("a", 3 * _SECOND, 10, 30), ("a", 9 * _SECOND, 50, 40)]


def test_sort_puts_rows_in_order_and_leaves_out_what_is_too_late() -> None:
    rows = left(("a", 5, 1), ("b", 3, 2), ("c", 9, 3), ("d", 1, 4), ("e", 7, 5))
    assert [row[0] for row in run(_EVERY["sort"], rows)] == ["b", "a", "e", "c"]


def resampled(rows: Sequence[Row], every: int, line: bool) -> list[Row]:
    """Return the result of resample by its definition, row by row."""
    last: dict[Any, tuple[int, Any]] = {}
    shown: list[Row] = []
    for key, at, value in rows:
        before = last.get(key)
        if before is not None and at < before[0]:
            continue
        if before is None and at % every == 0:
            shown.append((key, at, value))
        elif before is not None:
            for grid in range((before[0] // every + 1) * every, at + 1, every):
                if grid == at or not line:
                    shown.append((key, grid, value if grid == at else before[1]))
                else:
                    known = value is not None and before[1] is not None
                    part = (grid - before[0]) / (at - before[0])
                    shown.append((key, grid, before[1] + (value - before[1]) * part if known else None))
        last[key] = (at, value)
    return shown


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("name", ["resample", "resample on a line"])
def test_resample_is_what_its_definition_says_of_late_rows_nulls_and_wide_numbers(name: str, seed: int) -> None:
    chance = random.Random(seed)
    rows: list[Row] = []
    at = 0
    for _ in range(often(150, 300)):
        at += chance.choice([0, 0, 250_000, 1_000_000, 7_000_000])
        late = chance.choice([0, 0, 500_000, 3_000_000])
        value = chance.choice([None, chance.randint(0, 9), chance.choice([-(2**63), 2**63 - 1])])
        rows.append((chance.choice(["a", "b", None]), max(at - late, 0), value))
    expected = resampled(rows, 2 * _SECOND, name != "resample")
    assert len(expected) > 100
    arrivals = [(0, row) for row in rows]
    for seen in (run(_EVERY[name], arrivals), run(_EVERY[name], arrivals, chance=chance)):
        assert [row[:2] for row in seen] == [row[:2] for row in expected]
        for (_, _, value), (_, _, wanted) in zip(seen, expected, strict=True):
            assert value == (wanted if wanted is None else pytest.approx(wanted, rel=1e-9))


def test_resample_gives_values_at_regular_times() -> None:
    rows = left(("a", 1, 10), ("a", 5, 50), ("a", 6, 60))
    assert [row[1:] for row in run(_EVERY["resample"], rows)] == [
        (2 * _SECOND, 10),
        (4 * _SECOND, 10),
        (6 * _SECOND, 60),
    ]
    on_a_line = [row[1:] for row in run(_EVERY["resample on a line"], rows)]
    assert on_a_line == [(2 * _SECOND, 20.0), (4 * _SECOND, 40.0), (6 * _SECOND, 60.0)]


def test_map_that_makes_more_rows_is_told_to_be_a_flat_map() -> None:
    with pytest.raises(ValueError, match="use flat_map"):
        run(lambda a, b: a.map(lambda rows: rows.take([0, 0])), left(("a", 1, 1)))


def test_function_that_returns_another_schema_is_refused() -> None:
    with pytest.raises(TypeError, match="was promised"):
        run(lambda a, b: a.map(lambda rows: rows.select(["key", "at"])), left(("a", 1, 1)))
