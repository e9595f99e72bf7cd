"""Join with a table that changes: each row meets the latest row of its key in another stream.

Rows of both inputs are taken in the order of their progress, the latest time that their stream had reached; with
equal progress the table's row comes first. So a row meets the table as it was at the row's time, whatever the
order of arrival, if both streams are in the order of their times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from pyarrow import compute

from peacefs.dataflow.model.operator import Operator, Rows
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.model.stream_type import StreamType, names_of
from peacefs.dataflow.unit_state.operator_state import OperatorState
from peacefs.protocol.errors import InvalidQuery

from .input_progress import InputProgress
from .interface import OperatorSpecification
from .join import check_joined_keys
from .join_pairs import PROGRESS
from .keys import values_of_keys
from .row_times import times_of

_PROBES, _TABLE = 0, 1


@dataclass(frozen=True)
class JoinTable(OperatorSpecification):
    kind: ClassVar[str] = "join_table"
    judges_times: ClassVar[bool] = True
    keys: tuple[str, ...]
    #: "left": a row without a row of the table appears with nulls. None: it does not appear.
    how: str | None = None
    idle_us: tuple[int | None, ...] = ()

    bounds_causes = False

    @property
    def operator_class(self) -> OperatorClass:
        return OperatorClass.ARBITRARY if self.wants_time else OperatorClass.DETERMINISTIC

    @property
    def wants_time(self) -> bool:
        return any(self.idle_us)

    def output_type(self, inputs: Sequence[StreamType]) -> StreamType:
        left, table = inputs
        check_joined_keys(self.keys, left, table)
        added = [field for field in table.schema if field.name not in (*self.keys, table.time)]
        twice = [field.name for field in added if field.name in left.schema.names]
        if twice:
            raise InvalidQuery(f"join_table: both streams have {names_of(twice)}; rename on one side with select")
        return StreamType(pa.schema([*left.schema, *added]), left.time)

    def start(self, inputs: Sequence[StreamType], state: OperatorState) -> Operator:
        return _JoinTable(self, inputs, self.output_type(inputs).schema, state)


class _JoinTable(Operator):
    def __init__(
        self, of: JoinTable, inputs: Sequence[StreamType], schema: pa.Schema, state: OperatorState
    ) -> None:
        self._of, self._schema = of, schema
        self._times = [stream.time for stream in inputs]
        self._added = [field for field in schema if field.name not in inputs[_PROBES].schema.names]
        schemas = [stream.schema.append(pa.field(PROGRESS, pa.int64())) for stream in inputs]
        self._waiting = [state.rows(f"waiting {port}", one) for port, one in enumerate(schemas)]
        self._progress = InputProgress(state, 2, of.idle_us)
        # The values and the time of the latest row of each key.
        self._latest = state.mapping("latest")
        self._late = state.cell("late", 0)

    @property
    def late_rows(self) -> int:
        return int(self._late.get())

    def process(self, port: int, rows: Rows) -> Iterable[Rows]:
        maxima = self._progress.advance(port, times_of(rows, self._times[port]))
        self._waiting[port].append(rows.append_column(PROGRESS, pa.array(maxima)))
        return self._take()

    def end(self, port: int) -> Iterable[Rows]:
        self._progress.end(port)
        return self._take()

    def on_time(self, now_us: int) -> Iterable[Rows]:
        return self._take() if self._progress.on_time(now_us) else ()

    def _take(self) -> Iterable[Rows]:
        progress = self._progress.of()
        probes = self._split(_PROBES, progress[_TABLE] - 1)
        table = self._split(_TABLE, progress[_PROBES])
        if not probes.num_rows and not table.num_rows:
            return ()
        probed, stored = (values_of_keys(rows, self._of.keys) for rows in (probes, table))
        wanted = list(dict.fromkeys([*probed, *stored]))
        latest = dict(zip(wanted, self._latest.find_all(wanted), strict=True))
        found = self._met(probes, table, probed, stored, latest)
        for key in dict.fromkeys(stored):
            self._latest[key] = latest[key]
        return self._joined(probes, found)

    def _split(self, port: int, until_us: int) -> pa.Table:
        """Remove the rows of an input with a progress up to `until_us` (its first ones), and return them."""
        waiting = self._waiting[port].table()
        count = int(compute.sum(compute.less_equal(waiting.column(PROGRESS), until_us)).as_py() or 0)
        self._waiting[port].drop(count)
        return waiting.slice(0, count)

    def _met(
        self, probes: pa.Table, table: pa.Table, probed: list[Any], stored: list[Any], latest: dict[Any, Any]
    ) -> list[Any]:
        """Take rows in order. Return what each probe has met, and leave in `latest` what later ones will meet."""
        columns = [table.column(field.name).to_pylist() for field in self._added]
        times = table.column(self._times[_TABLE]).cast(pa.int64()).to_pylist()
        # The number of the table's rows before each probe.
        until = np.searchsorted(
            table.column(PROGRESS).to_numpy(), probes.column(PROGRESS).to_numpy(), side="right"
        )
        found, at = [], 0
        for key, end in zip([*probed, None], [*until.tolist(), len(stored)], strict=True):
            for row in range(at, end):
                before = latest[stored[row]]
                if before is not None and times[row] < before[0]:
                    self._late.set(self._late.get() + 1)
                else:
                    latest[stored[row]] = [times[row], *(column[row] for column in columns)]
            at = max(at, end)
            found.append(latest.get(key))
        return found[:-1]

    def _joined(self, probes: pa.Table, found: list[Any]) -> Iterable[Rows]:
        probes = probes.drop_columns([PROGRESS])
        if self._of.how is None:
            probes = probes.filter(pa.array([each is not None for each in found], pa.bool_()))
            found = [each for each in found if each is not None]
        columns = [*probes.columns]
        for at, field in enumerate(self._added, start=1):
            columns.append(pa.array([None if each is None else each[at] for each in found], field.type))
        batches: list[Rows] = pa.Table.from_arrays(columns, schema=self._schema).combine_chunks().to_batches()
        return [each for each in batches if each.num_rows]
