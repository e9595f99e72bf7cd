"""Run one operator on rows in batches of any size, and store and load its state between batches if wanted."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from peacefs.dataflow import Query
from peacefs.dataflow.model.operator import Operator
from peacefs.dataflow.query.network import OperatorNode
from peacefs.dataflow.query.streams import Stream
from peacefs.dataflow.unit_state.operator_state import OperatorState
from peacefs.dataflow.unit_state.paged_state import PagedState

from .unit_states import States

Written = Callable[..., Stream]
Rows = list[dict[str, Any]]


def operator_of(written: Written, *schemas: pa.Schema) -> OperatorNode:
    """Return the last operator of a stream made for each schema, with times in the column `at`."""
    query = Query("q")
    streams = [query.source(f"in-{number}", schema, time="at") for number, schema in enumerate(schemas)]
    for number, stream in enumerate(streams):
        stream.sink(f"sink-{number}")
    written(*streams).sink("out")
    return query.network().operators[-1]


def run_operator(node: OperatorNode, *inputs: pa.RecordBatch, chance: random.Random | None = None) -> pa.Table:
    """Return an operator's output. With `chance`, cut the inputs into random pieces in random order."""
    states = States()
    state = states.begin()
    operator = _start(node, state)
    made: list[pa.RecordBatch] = []
    waiting = [list(_pieces(rows, chance)) for rows in inputs]
    while any(waiting):
        ports = [port for port, pieces in enumerate(waiting) if pieces]
        port = chance.choice(ports) if chance else ports[0]
        made += operator.process(port, waiting[port].pop(0))
        if chance and chance.random() < 0.1:
            state = states.store_and_load(state)
            operator = _start(node, state)
    for port in range(len(inputs)):
        made += operator.end(port)
    return pa.Table.from_batches(made, node.type.schema)


def _start(node: OperatorNode, state: PagedState) -> Operator:
    return node.specification.start(node.input_types, OperatorState(state, node.name))


def _pieces(rows: pa.RecordBatch, chance: random.Random | None) -> Sequence[pa.RecordBatch]:
    if chance is None:
        return [rows]
    pieces, at = [], 0
    while at < rows.num_rows:
        size = chance.choice([1, 3, 20, 2000])
        pieces.append(rows.slice(at, size))
        at += size
    return pieces
