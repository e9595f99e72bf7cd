"""The operators of a unit, and the flow of rows through them. Rows that leave the unit are yielded."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import pyarrow as pa

from peacefs.dataflow.core.ha_input import HAInput
from peacefs.dataflow.model.operator import Operator
from peacefs.dataflow.model.phases import Phases
from peacefs.dataflow.model.reasons import reason_of
from peacefs.dataflow.query.network import UnitPlan
from peacefs.dataflow.unit_state.interface import UnitState
from peacefs.dataflow.unit_state.operator_state import OperatorState
from peacefs.protocol.errors import OperatorFailed

from .causes import UnitCauses

#: A batch that leaves the unit, and its stream.
Made = tuple[str, pa.RecordBatch]


class UnitOperators:
    def __init__(
        self,
        plan: UnitPlan,
        state: UnitState,
        inputs: Mapping[str, HAInput],
        outputs: Collection[str],
        *,
        keeps_stamps: bool,
        chance: random.Random,
        phases: Mapping[str, Phases],
    ) -> None:
        """`phases`: the phases that operators begin with. `chance`: the random numbers for functions."""
        self._plan, self._inputs, self._outputs = plan, inputs, outputs
        self._causes: UnitCauses | None = None
        #: Number of rows that each operator has received since the unit began.
        self.rows: Counter[str] = Counter()
        self._running: dict[str, Operator] = {}
        for node in plan.operators:
            kept = OperatorState(state, node.name, keeps_stamps=keeps_stamps, chance=chance)
            operator = node.specification.start(node.input_types, kept)
            if state.journal is not None:
                operator = state.journal.watch(node.name, operator)
            self._running[node.name] = operator
        for name, had in phases.items():
            self._running[name].begin_with(had)

    def track_causes(self, *, event: int, records: bool) -> UnitCauses:
        """From now on, stamp rows with their causes."""
        self._causes = UnitCauses(self._plan, self._running, self._inputs, event=event, records=records)
        return self._causes

    def push(self, stream: str, rows: pa.RecordBatch, which: str) -> Iterator[Made]:
        """Pass rows of an input to the operators."""
        return self._push(stream, rows, which, 0 if self._causes is None else self._causes.stamp)

    def end(self, stream: str, ended: set[str]) -> Iterator[Made]:
        """Tell the readers of a stream that it has ended, and so on for each reader whose last input this was.

        Streams that end are added to `ended`.
        """
        ended.add(stream)
        readers = self._plan.readers.get(stream, ())
        which = f"the end of {stream!r}"
        for node, port in readers:
            operator = self._running[node.name]
            for made in _call(node.name, which, lambda o=operator, p=port: o.end(p)):  # type: ignore[misc]
                yield from self._made(node.name, made, which)
        for name in dict.fromkeys(node.name for node, _ in readers if ended.issuperset(node.inputs)):
            yield from self.end(name, ended)

    def ended(self) -> set[str]:
        """Return the streams that have ended: inputs, and operators whose inputs have all ended."""
        ended = {stream for stream, source in self._inputs.items() if source.ended}
        for node in self._plan.operators:
            if ended.issuperset(node.inputs):
                ended.add(node.name)
        return ended

    def tell_time(self, now_us: int) -> Iterator[Made]:
        ended = self.ended()
        for node in self._plan.operators:
            if node.specification.wants_time and node.name not in ended:
                operator = self._running[node.name]
                for rows in _call(node.name, "the time", lambda o=operator: o.on_time(now_us)):  # type: ignore[misc]
                    yield from self._made(node.name, rows)

    @property
    def late_rows(self) -> dict[str, int]:
        """Number of late rows that each operator has left out. Operators without late rows are omitted."""
        return {name: operator.late_rows for name, operator in self._running.items() if operator.late_rows}

    # -- inside ------------------------------------------------------------------------------------------

    def _push(self, stream: str, rows: pa.RecordBatch, which: str, stamp: int) -> Iterator[Made]:
        """Pass rows of a stream to its readers, and yield the rows that leave the unit."""
        for node, port in self._plan.readers.get(stream, ()):
            operator = self._running[node.name]
            self.rows[node.name] += rows.num_rows
            caused = stamp if self._causes is None else self._causes.enter(node.name, stamp)
            for made in _call(node.name, which, lambda o=operator, p=port: o.process(p, rows)):  # type: ignore[misc]
                yield from self._made(node.name, made, which, caused)

    def _made(
        self, operator: str, rows: pa.RecordBatch, which: str = "the time", stamp: int | None = None
    ) -> Iterator[Made]:
        if not rows.num_rows:
            return
        if operator in self._outputs:
            yield operator, rows
        if stamp is None:
            stamp = 0 if self._causes is None else self._causes.of(operator)
        yield from self._push(operator, rows, which, stamp)


def _call(operator: str, which: str, call: Callable[[], Iterable[pa.RecordBatch]]) -> list[pa.RecordBatch]:
    try:
        return list(call())
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a user's function raises, even sys.exit()
        raise OperatorFailed(f"operator {operator!r} failed on {which}: {reason_of(error)}") from error
