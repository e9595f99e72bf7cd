"""Groups in pages equal Arrow's aggregation of all rows, whatever the batches, types and nulls."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from simulation.seeds import seeds
from support.long_runs import often
from support.unit_states import States

from peacefs.dataflow.unit_state.interface import Accumulator

_VALUES = {
    pa.int32(): lambda chance: chance.randint(-1000, 1000),
    pa.uint64(): lambda chance: chance.randint(0, 2**40),
    pa.float64(): lambda chance: chance.randint(-1000, 1000) / 4,
    pa.timestamp("us"): lambda chance: datetime(2026, 1, 1) + timedelta(seconds=chance.randint(0, 9999)),
    pa.string(): lambda chance: f"text {chance.randint(0, 9999)}",
    pa.decimal128(10, 2): lambda chance: Decimal(chance.randint(-9999, 9999)) / 100,
    pa.bool_(): lambda chance: chance.random() < 0.5,
}
_SUMS = {pa.int32(): pa.int64(), pa.uint64(): pa.uint64(), pa.float64(): pa.float64()}


def accumulators_of(kind: pa.DataType) -> list[Accumulator]:
    found = [
        Accumulator("rows", "rows", pa.int64()),
        Accumulator("values", "values", pa.int64(), "value"),
        Accumulator("least", "min", kind, "value"),
        Accumulator("most", "max", kind, "value"),
    ]
    if kind in _SUMS:
        found.append(Accumulator("sum", "sum", _SUMS[kind], "value"))
    return found


def rows_under(chance: random.Random, kind: pa.DataType, count: int, keys: int, nulls: float) -> pa.RecordBatch:
    def some(value: Any) -> Any:
        return None if chance.random() < nulls else value

    names = [some(f"key {chance.randrange(keys)}") for _ in range(count)]
    numbers = [some(chance.randrange(3)) for _ in range(count)]
    values = [some(_VALUES[kind](chance)) for _ in range(count)]
    schema = pa.schema([("name", pa.string()), ("number", pa.int64()), ("value", kind)])
    return pa.RecordBatch.from_arrays(
        [pa.array(names), pa.array(numbers, pa.int64()), pa.array(values, kind)], schema=schema
    )


@pytest.mark.parametrize("seed", seeds(4))
@pytest.mark.parametrize("kind", _VALUES, ids=str)
def test_groups_are_those_of_all_rows_at_once(kind: pa.DataType, seed: int) -> None:
    """Few keys and many, large batches and small, with and without nulls; the state is reloaded at times.

    Some batches are admitted: the groups report which of their keys are new.
    """
    chance = random.Random(seed)
    keys, nulls = chance.choice([3, 4000]), chance.choice([0.0, 0.2])
    rows = rows_under(chance, kind, often(3000, 6000), keys, nulls)
    schema = pa.schema([rows.schema.field("name"), rows.schema.field("number")])
    states = States()
    state = states.begin()
    groups = state.groups("groups", schema, accumulators_of(kind))
    at = 0
    there: dict[int, set[tuple[str, ...]]] = {4: set(), 7: set()}
    while at < rows.num_rows:
        part = rows.slice(at, chance.choice([1, 100, 2000]))
        at += part.num_rows
        bucket = chance.choice([4, 7])
        found = set(_rows(pa.Table.from_batches([part.select(schema.names)])))
        if chance.random() < 0.5:
            groups.add(bucket, part)
        else:
            assert sorted(_rows(groups.admit(bucket, part))) == sorted(found - there[bucket])
        there[bucket] |= found
        if chance.random() < 0.1:
            state = states.store_and_load(state)
            groups = state.groups("groups", schema, accumulators_of(kind))
    wanted = [
        (
            [] if each.operation == "rows" else "value",
            {"rows": "count_all", "values": "count"}.get(each.operation, each.operation),
        )
        for each in accumulators_of(kind)
    ]
    expected = pa.Table.from_batches([rows]).group_by(["name", "number"]).aggregate(wanted)
    found = groups.between(0, 10)
    assert set(groups.buckets()) <= {4, 7}
    assert sorted(_rows(found)) == sorted(_rows(expected))


def test_number_that_is_noted_stays_until_it_is_put() -> None:
    """Rows change the other accumulators. A mark that was never put is 0."""
    states = States()
    accumulators = [Accumulator("rows", "rows", pa.int64()), Accumulator("mark", "noted", pa.int64())]
    groups = states.begin().groups("groups", pa.schema([("key", pa.string())]), accumulators)
    keys = pa.table({"key": ["a", "b"]})
    for rows in (2, 1500):
        groups.add(1, pa.RecordBatch.from_pydict({"key": ["a", "b"] * rows}))
    (some,) = pa.table({"key": ["b"], "rows": [1502], "mark": [7]}).to_batches()
    groups.put(1, some)
    groups.add(1, pa.RecordBatch.from_pydict({"key": ["a", "b", None]}))
    assert groups.find(1, keys).to_pydict() == {"rows": [1503, 1503], "mark": [0, 7]}
    assert groups.between(1, 2).column("mark").to_pylist().count(0) == 2


def _rows(table: pa.Table) -> list[tuple[str, ...]]:
    return [tuple(map(str, row)) for row in zip(*(column.to_pylist() for column in table.columns), strict=True)]
