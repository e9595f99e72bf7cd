"""A query as mappers and reducers: its keyed functions, and the stateless operators before and between them.

A mapper for each source runs filter, select, map and flat map. The ring runs each `process` with declared state,
and the stateless operators after it. Rows for another keyed function return to the edge, which distributes them by
the key of that function: the results of the first function have a mapper, like the rows of a source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa

from peacefs.dataflow.model.operator import Operator
from peacefs.dataflow.model.reasons import reason_of
from peacefs.dataflow.operators.process import Process
from peacefs.dataflow.operators.row_operators import Filter, MapRows, Select, Union, checked
from peacefs.dataflow.query.network import Network, OperatorNode
from peacefs.dataflow.unit_state.operator_state import OperatorState
from peacefs.protocol.errors import InvalidQuery, OperatorFailed, PeacefsError
from peacefs.state.pages.manager import PageManager

from .hashed_rows import NO_ROWS, HashedRows
from .key_places import key_places
from .keyed_table import KeyedTable
from .paged_table import PagedTable, TableKind
from .stage_tables import StageTables

_STATELESS = (Filter, Select, MapRows)
_WAY_OUT = "put it elsewhere, or choose SGuard(interval_s=1), which covers every operator"


@dataclass(frozen=True)
class RingStage:
    """A keyed function, and the stateless operators between it and the next function or the sink."""

    keyed: OperatorNode
    after: tuple[OperatorNode, ...]

    @property
    def key(self) -> tuple[str, ...]:
        return cast(Process, self.keyed.specification).state_key


@dataclass(frozen=True)
class RingPlan:
    """The operators of a query, by who runs them."""

    #: By the name of the keyed function, upstream functions first.
    stages: dict[str, RingStage]
    #: For each source, the operators between it and a keyed function, in order.
    sources: dict[str, tuple[OperatorNode, ...]]
    #: The stage that receives the rows of each source, and of each stage except the last.
    goes_to: dict[str, str]
    sink: str

    @property
    def mappers(self) -> list[str]:
        """Return the names of everything whose rows are distributed by key, upstream first."""
        return [*self.sources, *(name for name in self.stages if name in self.goes_to)]

    def feeds(self, stage: str) -> frozenset[str]:
        """Return the mappers whose rows a stage receives."""
        return frozenset(name for name, to in self.goes_to.items() if to == stage)


def plan_of(network: Network) -> RingPlan:
    """Return the plan of a query. Raises InvalidQuery, with a one-line message, if a ring cannot run it."""
    for node in network.operators:
        if not isinstance(node.specification, (*_STATELESS, Union, Process)):
            raise InvalidQuery(
                f"PeerRing runs filter, select, map, flat map and process by key; {node.name!r} is "
                f"{node.specification.kind}: {_WAY_OUT}"
            )
        if isinstance(node.specification, Process):
            _check_keyed(node)
    keyed = [node for node in network.operators if isinstance(node.specification, Process)]
    if not keyed or len(network.sinks) != 1:
        raise InvalidQuery(
            f"PeerRing runs functions with state by key, and one sink; query {network.name!r} has "
            f"{len(keyed)} and {len(network.sinks)}: {_WAY_OUT}"
        )
    return _Plans(network, keyed).plan()


class _Plans:
    """Traces a query back from the sink, and from each keyed function, to whatever feeds it."""

    def __init__(self, network: Network, keyed: Sequence[OperatorNode]) -> None:
        self._network = network
        self._by_name = {each.name: each for each in network.operators}
        self._keyed = {node.name: node for node in keyed}
        self._ways: dict[str, tuple[OperatorNode, ...]] = {}
        self._goes_to: dict[str, str] = {}

    def plan(self) -> RingPlan:
        (sink,) = self._network.sinks
        self._walk(sink.input, (), None)
        for name, node in self._keyed.items():
            self._walk(node.inputs[0], (), name)
        for name in self._keyed.keys() - self._ways.keys():
            raise InvalidQuery(f"nothing reads what {name!r} makes: end it in the sink")
        # Operators are in the order in which they were created, so upstream ones come first.
        stages = {name: RingStage(node, self._ways[name]) for name, node in self._keyed.items()}
        sources = {name: way for name, way in self._ways.items() if name not in self._keyed}
        return RingPlan(stages, sources, self._goes_to, sink.name)

    def _walk(self, stream: str, after: tuple[OperatorNode, ...], to: str | None) -> None:
        node = self._by_name.get(stream)
        if node is not None and node.name not in self._keyed:
            for each in node.inputs:
                self._walk(each, after if isinstance(node.specification, Union) else (node, *after), to)
            return
        if stream in self._ways:
            what = "source" if node is None else "what"
            made = "" if node is None else " makes"
            raise InvalidQuery(
                f"{what} {stream!r}{made} comes to the ring twice: give each way a source of its own"
            )
        if node is None and to is None:
            raise InvalidQuery(
                f"source {stream!r} comes to the sink of query {self._network.name!r} without a function with "
                f"state by key: {_WAY_OUT}"
            )
        self._ways[stream] = after
        if to is not None:
            self._goes_to[stream] = to


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
    """The operators of one mapper, and the key places of its rows."""

    def __init__(self, plan: RingPlan, mapper: str) -> None:
        # The nodes run the steps between two keyed functions.
        self._steps = [(node, _started(node)) for node in plan.sources.get(mapper, ())]
        self._key = plan.stages[plan.goes_to[mapper]].key

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


class Reducing:
    """Calling it runs a reducer's functions on the rows of an interval."""

    def __init__(self, plan: RingPlan) -> None:
        self._numbers = {name: number for number, name in enumerate(plan.stages)}
        self._goes_to = plan.goes_to
        self._stages = {name: _RunningStage(stage) for name, stage in plan.stages.items()}

    def __call__(self, mapper: str, table: KeyedTable, rows: HashedRows) -> Iterable[pa.RecordBatch]:
        stage = self._goes_to[mapper]
        if isinstance(table, StageTables):
            table = table.of(self._numbers[stage])
        return self._stages[stage](table, rows)


class _RunningStage:
    def __init__(self, stage: RingStage) -> None:
        self._node = stage.keyed
        self._specification = cast(Process, stage.keyed.specification)
        self._function = cast(Callable[[pa.RecordBatch, Any], object], self._specification.function)
        self._steps = [(node, _started(node)) for node in stage.after]

    def __call__(self, table: KeyedTable, rows: HashedRows) -> Iterable[pa.RecordBatch]:
        try:
            given = self._function(rows.rows, table)
            made = checked(given, self._specification.schema, self._specification.time, self._function)
        except (PeacefsError, KeyboardInterrupt):
            raise
        except BaseException as error:  # whatever the user's function raises, even sys.exit()
            raise _failed(self._node, error) from error
        return _apply(self._steps, [made] if made.num_rows else [])


def tables(plan: RingPlan, pages: PageManager) -> Callable[[], KeyedTable]:
    """Return the factory of an interval's state."""
    kinds = []
    for name, stage in plan.stages.items():
        specification = cast(Process, stage.keyed.specification)
        assert specification.state is not None
        kinds.append(TableKind(pages, specification.state, specification.state_key, name))
    if len(kinds) == 1:
        return lambda: PagedTable(kinds[0])
    return lambda: StageTables([PagedTable(kind) for kind in kinds])


def _failed(node: OperatorNode, error: BaseException) -> OperatorFailed:
    return OperatorFailed(f"operator {node.name!r} failed: {reason_of(error)}")


def _started(node: OperatorNode) -> Operator:
    # A function without state ignores it.
    return node.specification.start(node.input_types, cast(OperatorState, None))


def _apply(
    steps: Sequence[tuple[OperatorNode, Operator]], batches: Sequence[pa.RecordBatch]
) -> list[pa.RecordBatch]:
    made = list(batches)
    for node, operator in steps:
        try:
            made = [out for batch in made for out in operator.process(0, batch) if out.num_rows]
        except (PeacefsError, KeyboardInterrupt):
            raise
        except BaseException as error:  # whatever the user's function raises, even sys.exit()
            raise _failed(node, error) from error
    return made
