"""A query as mappers and reducers: what is without state before its keyed function, and that function.

A mapper for each source runs filter, select, map and flat map; the ring runs one `process` with declared state,
and what is without state after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa

from peacefs.dataflow.operators.interface import Operator
from peacefs.dataflow.operators.process import Process
from peacefs.dataflow.operators.row_operators import Filter, MapRows, Select, Union
from peacefs.dataflow.query.network import Network, OperatorNode
from peacefs.dataflow.unit_state.operator_state import OperatorState
from peacefs.protocol.errors import InvalidQuery, OperatorFailed, PeacefsError
from peacefs.state.pages.manager import PageManager

from .hashed_rows import NO_ROWS, HashedRows
from .key_places import key_places
from .keyed_table import KeyedTable
from .paged_table import PagedTable, TableKind

_STATELESS = (Filter, Select, MapRows)
_WAY_OUT = "put it elsewhere, or choose SGuard(interval_s=1), which covers every operator"


@dataclass(frozen=True)
class RingPlan:
    """The operators of a query, by who runs them."""

    #: For each source the operators from it to the keyed function, in order.
    mappers: dict[str, tuple[OperatorNode, ...]]
    keyed: OperatorNode
    after: tuple[OperatorNode, ...]
    sink: str

    @property
    def key(self) -> tuple[str, ...]:
        return cast(Process, self.keyed.specification).state_key


def plan_of(network: Network) -> RingPlan:
    """Return the plan of a query. Raises InvalidQuery, in one line, for one that a ring cannot run."""
    keyed = [node for node in network.operators if isinstance(node.specification, Process)]
    for node in network.operators:
        if not isinstance(node.specification, (*_STATELESS, Union, Process)):
            raise InvalidQuery(
                f"PeerRing runs filter, select, map, flat map and one process by key; {node.name!r} is "
                f"{node.specification.kind}: {_WAY_OUT}"
            )
    if len(keyed) != 1 or len(network.sinks) != 1:
        raise InvalidQuery(
            f"PeerRing runs one process with state by key, and one sink; query {network.name!r} has "
            f"{len(keyed)} and {len(network.sinks)}: {_WAY_OUT}"
        )
    (node,) = keyed
    _check_keyed(node)
    by_name = {each.name: each for each in network.operators}
    after: list[OperatorNode] = []
    stream = network.sinks[0].input
    while stream != node.name:
        each = by_name.get(stream)
        if each is None or len(each.inputs) != 1:
            raise InvalidQuery(f"the sink of query {network.name!r} does not follow {node.name!r}: {_WAY_OUT}")
        after.insert(0, each)
        stream = each.inputs[0]
    mappers: dict[str, tuple[OperatorNode, ...]] = {}
    _walk(node.inputs[0], (), by_name, mappers)
    return RingPlan(mappers, node, tuple(after), network.sinks[0].name)


def _walk(
    stream: str,
    after: tuple[OperatorNode, ...],
    by_name: dict[str, OperatorNode],
    found: dict[str, tuple[OperatorNode, ...]],
) -> None:
    node = by_name.get(stream)
    if node is None:
        if stream in found:
            raise InvalidQuery(f"source {stream!r} comes to the ring twice: give each way a source of its own")
        found[stream] = after
        return
    for each in node.inputs:
        _walk(each, after if isinstance(node.specification, Union) else (node, *after), by_name, found)


def _check_keyed(node: OperatorNode) -> None:
    specification = cast(Process, node.specification)
    if specification.state is None:
        raise InvalidQuery(
            f"PeerRing cuts the state of {node.name!r} by key: declare it with state={{...}} and key=..."
        )
    for column in specification.state_key:
        if column not in node.input_types[0].schema.names:
            raise InvalidQuery(
                f"PeerRing sends rows by the key of the state, {column!r}, and the rows of {node.name!r} have no "
                "such column: name it alike"
            )
    if specification.wants_chance or not specification.deterministic:
        raise InvalidQuery(
            f"PeerRing replays tuples in another order, and {node.name!r} is not deterministic: use "
            "ActiveStandby()"
        )


class Mapping:
    """The operators of one source, and the places of its rows' keys."""

    def __init__(self, plan: RingPlan, source: str) -> None:
        self._steps = [(node, _started(node)) for node in plan.mappers[source]]
        self._key = plan.key

    def __call__(self, rows: pa.RecordBatch) -> HashedRows:
        batches = _apply(self._steps, [rows])
        if len(batches) != 1:
            table = pa.Table.from_batches(batches, schema=None if batches else rows.schema)
            combined = table.combine_chunks().to_batches()
            batches = combined or [rows.slice(0, 0)]
        (made,) = batches
        if not made.num_rows:
            return NO_ROWS
        return HashedRows.sort(key_places([made.column(name) for name in self._key]), made)


def reducing(plan: RingPlan) -> Callable[[KeyedTable, HashedRows], Iterable[pa.RecordBatch]]:
    """Return what a reducer does with rows of an interval."""
    specification = cast(Process, plan.keyed.specification)
    function = cast(Callable[[pa.RecordBatch, Any], pa.RecordBatch], specification.function)
    steps = [(node, _started(node)) for node in plan.after]

    def reduce(table: KeyedTable, rows: HashedRows) -> Iterable[pa.RecordBatch]:
        try:
            made = function(rows.rows, table)
        except PeacefsError:
            raise
        except Exception as error:  # whatever the user's function raises
            raise OperatorFailed(
                f"operator {plan.keyed.name!r} failed: {type(error).__name__}: {error}"
            ) from error
        return _apply(steps, [made] if made.num_rows else [])

    return reduce


def tables(plan: RingPlan, pages: PageManager) -> Callable[[], KeyedTable]:
    """Return what makes the state of an interval."""
    specification = cast(Process, plan.keyed.specification)
    assert specification.state is not None
    kind = TableKind(pages, specification.state, specification.state_key)
    return lambda: PagedTable(kind)


def _failed(node: OperatorNode, error: Exception) -> OperatorFailed:
    return OperatorFailed(f"operator {node.name!r} failed: {type(error).__name__}: {error}")


def _started(node: OperatorNode) -> Operator:
    # A function without state does not look at it.
    return node.specification.start(node.input_types, cast(OperatorState, None))


def _apply(
    steps: Sequence[tuple[OperatorNode, Operator]], batches: Sequence[pa.RecordBatch]
) -> list[pa.RecordBatch]:
    made = list(batches)
    for node, operator in steps:
        try:
            made = [out for batch in made for out in operator.process(0, batch) if out.num_rows]
        except PeacefsError:
            raise
        except Exception as error:  # whatever the user's function raises
            raise _failed(node, error) from error
    return made
