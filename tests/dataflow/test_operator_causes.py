"""Operators report which rows their state depends on. Restarted empty with those rows, they continue unchanged."""

from __future__ import annotations

import random
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from simulation.seeds import seeds
from support.dataflows import SCHEMA
from support.steps import steps
from support.unit_states import States

from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.model.operator import Operator
from peacefs.dataflow.query.network import OperatorNode
from peacefs.dataflow.query.streams import Stream
from peacefs.dataflow.unit_state.operator_state import OperatorState

#: (port, rows), in the order of arrival.
Arrivals = Sequence[tuple[int, pa.RecordBatch]]
_OTHER = SCHEMA.set(2, pa.field("other", pa.int64()))


def _sums(rows: pa.RecordBatch, state: MutableMapping[Any, Any]) -> pa.RecordBatch:
    """Give each row the sum of the values of the last two seconds."""
    sums = []
    kept = [list(each) for each in state.get("rows", [])]
    for at, value in zip(
        rows.column("at").cast(pa.int64()).to_pylist(), rows.column("value").to_pylist(), strict=True
    ):
        kept.append([at, value])
        latest = max(at for at, _ in kept)
        kept = [each for each in kept if each[0] > latest - 2_000_000]
        sums.append(sum(value for _, value in kept))
    state["rows"] = kept
    return rows.set_column(2, "value", pa.array(sums, pa.int64()))


_WRITTEN: dict[str, Callable[[Stream, Stream], Stream]] = {
    "filter": lambda left, _: left.filter(F.col("value") > 5),
    "tumbling window": lambda left, _: left.key_by("key").window("2s").aggregate(F.count(), F.sum("value")),
    "sliding window": lambda left, _: left.window("3s", every="1s").aggregate(F.sum("value")),
    "window with lateness": lambda left, _: (
        left.key_by("key").window("3s", every="1s", lateness="700ms").aggregate(F.sum("value"))
    ),
    "window with holes": lambda left, _: left.window("1s", every="3s").aggregate(F.sum("value")),
    "sort": lambda left, _: left.sort("1s"),
    "resample": lambda left, _: left.key_by("key").resample("value", every="300ms"),
    "process": lambda left, _: left.process(_sums, remembers="2s"),
    "join": lambda left, right: left.key_by("key").join(right.key_by("key"), within="900ms"),
}


@pytest.mark.parametrize("name", _WRITTEN)
@pytest.mark.parametrize("seed", seeds(3))
def test_causes_are_enough_to_go_on_from_an_empty_state(name: str, seed: int) -> None:
    """Rows come out of order, some too late, some after long silences. The operator restarts at times."""
    node = _node_of(_WRITTEN[name])
    arrivals = _arrivals(node, random.Random(f"{name} {seed}"), 60)
    operator = _start(node)
    said: list[list[int | None]] = []
    made = []
    for stamp, (port, rows) in enumerate(arrivals):
        operator.stamp = stamp
        made.append(_rows_of(operator.process(port, rows)))
        said.append([operator.oldest(each) if operator.keeps_rows else None for each in range(len(node.inputs))])
    for at in steps(len(arrivals), every=9, offset=seed):
        again = _start(node)
        for stamp, (port, rows) in enumerate(arrivals):
            oldest = said[at][port]
            if stamp <= at and (oldest is None or stamp < oldest):
                continue
            found = _rows_of(again.process(port, rows))
            if stamp > at:
                assert found == made[stamp], f"begun after row {at} with rows from {said[at]}: differs at {stamp}"


@pytest.mark.parametrize("name", _WRITTEN)
def test_causes_rise_as_rows_come(name: str) -> None:
    """Causes never decrease, and old rows stop being causes. Otherwise nothing could ever be trimmed."""
    node = _node_of(_WRITTEN[name])
    arrivals = _arrivals(node, random.Random(name), 200, silences=False)
    operator = _start(node)
    before = [0] * len(node.inputs)
    for stamp, (port, rows) in enumerate(arrivals):
        operator.stamp = stamp
        list(operator.process(port, rows))
        for each in range(len(node.inputs)):
            oldest = operator.oldest(each) if operator.keeps_rows else None
            if oldest is not None:
                assert oldest >= before[each]
                before[each] = oldest
    assert not operator.keeps_rows or min(before) > 100


def _node_of(written: Callable[[Stream, Stream], Stream]) -> OperatorNode:
    query = Query("q")
    left, right = query.source("left", SCHEMA, time="at"), query.source("right", _OTHER, time="at")
    left.sink("left")
    right.sink("right")
    written(left, right).sink("out")
    return query.network().operators[-1]


def _start(node: OperatorNode) -> Operator:
    return node.specification.start(
        node.input_types, OperatorState(States().begin(), node.name, keeps_stamps=True)
    )


def _arrivals(node: OperatorNode, chance: random.Random, count: int, *, silences: bool = True) -> Arrivals:
    made = []
    now_us = 5_000_000
    for number in range(count):
        now_us += chance.randrange(400_000) if chance.random() > 0.05 or not silences else 4_000_000
        size = chance.randint(1, 3)
        # Some rows are early by more than the operator waits.
        at = [max(now_us + chance.choice([0, 0, 0, -300_000, -1_500_000, 900_000]), 0) for _ in range(size)]
        port = chance.randrange(len(node.inputs))
        keys = pa.array([chance.choice("ab") for _ in range(size)])
        values = pa.array([number * 10 + place for place in range(size)], pa.int64())
        times = pa.array(at, pa.int64()).cast(SCHEMA.field("at").type)
        made.append((port, pa.record_batch([keys, times, values], schema=node.input_types[port].schema)))
    return made


def _rows_of(batches: Any) -> list[tuple[Any, ...]]:
    return [row for batch in batches for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)]
