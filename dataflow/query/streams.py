"""Streams of a query, as users write them. Each method returns a new stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from peacefs.dataflow.functions import col
from peacefs.dataflow.model.durations import Duration, microseconds
from peacefs.dataflow.model.numbers import check_count
from peacefs.dataflow.model.schemas import Schema, as_schema
from peacefs.dataflow.model.stream_type import names_of
from peacefs.dataflow.operators.key_hashes import check_hashed
from peacefs.dataflow.operators.left_out import LeftOut
from peacefs.dataflow.operators.process import DrawingFunction, Process, StatefulFunction, TableFunction
from peacefs.dataflow.operators.row_operators import Filter, MapRows, RowsFunction, Select, Union
from peacefs.dataflow.operators.sort import BoundedSort
from peacefs.dataflow.recovery.technique import Technique
from peacefs.protocol.errors import InvalidQuery

from .keyed_stream import KeyedStream, WindowedStream, idle_of
from .operator_plan import OperatorPlan, PlannedStream, check_stream
from .stages import MergeParts, Partition, Stage

# Maximum number of parts of a stage. Then the default of `grain_rows`.
dataflow_parts_max: Final = 1024
dataflow_grain_rows: Final = 2048


class Stream(PlannedStream):
    """Rows of one type. Each method returns a new stream. Several readers may use the same stream."""

    # -- row by row ---------------------------------------------------------------------------------------

    def filter(self, condition: Any, *, name: str | None = None) -> Stream:
        """Keep the rows for which an expression is true: `filter(col("status") == 401)`."""
        return self.add(Filter(condition), name=name)

    def select(self, *columns: str, name: str | None = None, **computed: Any) -> Stream:
        """Keep columns, and compute others: `select("at", "address", bits=col("bytes") * 8)`."""
        twice = [column for column in columns if column in computed]
        if twice:
            raise InvalidQuery(f"select names {names_of(twice)} twice: as a column and as a computed one")
        self.type.require(columns, "select")
        names = (*columns, *computed)
        expressions = (*(col(column) for column in columns), *computed.values())
        return self.add(Select(names, expressions), name=name)

    def with_columns(self, *, name: str | None = None, **computed: Any) -> Stream:
        """Add computed columns, or replace columns: `with_columns(bits=col("bytes") * 8)`."""
        return self.select(
            *(each for each in self.type.schema.names if each not in computed), name=name, **computed
        )

    def map(
        self,
        function: RowsFunction,
        schema: Schema | None = None,
        *,
        time: str | None = None,
        deterministic: bool = True,
        name: str | None = None,
    ) -> Stream:
        """Apply a function to record batches that makes one row from each row. `schema`: that of its output."""
        return self._map(function, schema, time, deterministic, flat=False, name=name)

    def flat_map(
        self,
        function: RowsFunction,
        schema: Schema | None = None,
        *,
        time: str | None = None,
        deterministic: bool = True,
        name: str | None = None,
    ) -> Stream:
        """Apply a function to record batches that makes any number of rows from each row."""
        return self._map(function, schema, time, deterministic, flat=True, name=name)

    # -- several rows ---------------------------------------------------------------------------------------

    def union(self, *others: Stream, name: str | None = None) -> Stream:
        """Merge the rows of other streams of the same type into this one, as they arrive.

        If a window, sort, join or resample reads the result, rows wait for the input that is behind.
        """
        if not others:
            raise InvalidQuery("union needs another stream: union(other)")
        for other in others:
            check_stream("union", other)
        return self.add(Union(idle_of(self, *others)), others, name)

    def sort(self, within: Duration, *, name: str | None = None) -> Stream:
        """Sort rows by time. A row that is late by more than `within` is left out."""
        return self.add(BoundedSort(microseconds(within, "sort(within)", least=0)), name=name)

    def late(self, *, name: str | None = None) -> Stream:
        """Return the rows that the operator which made this stream has left out because of their times.

        It is a side output of windows, sessions, sorts, and sources with `ahead`.
        """
        node = self.query.operator(self.name)
        only = None if node is None else node.specification.late_only()
        if node is None or only is None:
            raise InvalidQuery(
                f"{self.name!r} leaves out no rows: late() follows aggregate(...) of windows of time or sessions, "
                "sort(...), or a source with ahead=..."
            )
        before = Stream(self.query, node.inputs[0], node.input_types[0], node.unit, self.timing)
        return before.add(LeftOut(only), name=name)

    def key_by(self, *columns: str) -> KeyedStream[Stream]:
        """Group rows by columns for the next operator: a window, a join, or a resample."""
        if not columns:
            raise InvalidQuery("key_by needs a column: key_by('address'); for all rows together leave it out")
        self.type.require(columns, "key_by")
        return KeyedStream(self, columns)

    def window(
        self,
        size: Duration,
        every: Duration | None = None,
        *,
        lateness: Duration | None = None,
        timeout: Duration | None = None,
    ) -> WindowedStream[Stream]:
        """Group rows by windows of time, over all keys together. See `KeyedStream.window`."""
        return KeyedStream(self, ()).window(size, every, lateness=lateness, timeout=timeout)

    def session_window(self, gap: Duration, *, lateness: Duration | None = None) -> WindowedStream[Stream]:
        """Group rows by sessions, over all keys together. See `KeyedStream.session_window`."""
        return KeyedStream(self, ()).session_window(gap, lateness=lateness)

    def count_window(
        self, size: int, every: int | None = None, *, timeout: Duration | None = None
    ) -> WindowedStream[Stream]:
        """Group rows by windows of a number of rows. See `KeyedStream.count_window`."""
        return KeyedStream(self, ()).count_window(size, every, timeout=timeout)

    def resample(
        self, *columns: str, every: Duration, method: Literal["last", "linear"] = "last", name: str | None = None
    ) -> Stream:
        """Give the values of columns at regular times. See `KeyedStream.resample`."""
        return KeyedStream(self, ()).resample(*columns, every=every, method=method, name=name)

    def process(
        self,
        function: StatefulFunction | TableFunction | DrawingFunction,
        schema: Schema | None = None,
        *,
        time: str | None = None,
        deterministic: bool = True,
        state: Schema | None = None,
        key: str | Sequence[str] = (),
        remembers: Duration | None = None,
        unique: str | Sequence[str] = (),
        name: str | None = None,
    ) -> Stream:
        """Apply a function of (record batch, state). The state is a map that survives failures.

        With `state={"user": "string", "visits": "int64"}, key="user"` the state is a `peacefs.state.UnorderedMap`
        of such records, which works on batches: `state.add_at(rows.column("user"), 1)`, `state.find(...)`.
        Otherwise it is a map of Python values, for functions that work row by row.

        The output must depend only on the rows and the state, and not on how rows were cut into batches. If not,
        pass `deterministic=False`. A function that uses random numbers takes a third argument, a `random.Random`,
        which draws the same numbers again in a replay. Such a function always counts as arbitrary.

        `remembers`: the state depends only on rows that are at most this much older than the latest one.
        Techniques such as upstream backup can then rebuild the state from these rows.

        A function that makes the same rows from the same input, but in any order, is *set-preserving*. `unique`
        names the columns that identify its rows. In a partitioned stage its rows are sorted by these columns, so
        that it can be recovered like a function with a fixed order.
        """
        schema, time = self._schema(schema, time)
        kept = None if state is None else as_schema(state)
        keys = (key,) if isinstance(key, str) else tuple(key)
        remembers_us = None if remembers is None else microseconds(remembers, "process(remembers)", least=0)
        told_apart = (unique,) if isinstance(unique, str) else tuple(unique)
        process = Process(function, schema, time, deterministic, kept, keys, remembers_us, told_apart)
        return self.add(process, name=name)

    # -- where it runs and ends ---------------------------------------------------------------------------------

    def unit(self, name: str, *, technique: Technique | None = None) -> Stream:
        """Run the operators that follow in an HA unit of this name, which is recovered separately.

        `technique`: how it is recovered, if not like the rest of the query, such as `unit("windows",
        technique=CEC())`.
        """
        if not isinstance(name, str) or not name:
            raise InvalidQuery("unit needs a name: unit('sessions')")
        stage = self.query.stage_of(self.unit_name)
        if stage is not None:
            self.query.put_in_stage(name, stage)
        elif self.query.stage_of(name) is not None:
            raise InvalidQuery(f"unit {name!r} is partitioned: a stream enters it by partition(...)")
        if technique is not None:
            self.query.recover_by(name, technique)
        return Stream(self.query, self.name, self.type, name, self.timing)

    def partition(
        self,
        *columns: str,
        parts: int,
        name: str | None = None,
        grain_rows: int = dataflow_grain_rows,
        grain: Duration = "100ms",
    ) -> Stream:
        """Run the operators that follow in `parts` units, each of which gets a share of the keys, in order.

        Units are named after `name`: `name[0]`, `name[1]` and so on. If a part gets no rows, the other parts' rows
        wait for at most `grain_rows` rows of all parts, or until row times have advanced by `grain`. Streams that
        are partitioned alike, under the same name, can be joined. The stage ends with `merge` or another
        `partition`.
        """
        if not columns:
            raise InvalidQuery("partition needs a column: partition('user', parts=4)")
        check_count(f"partition(parts={parts!r})", parts, least=1, most=dataflow_parts_max)
        check_count(f"partition(grain_rows={grain_rows!r})", grain_rows, least=1)
        stage = Stage(columns, parts)
        unit = name or f"by {', '.join(columns)}"
        specification = Partition(stage, self.unit_name, grain_rows, microseconds(grain, "partition(grain)"))
        check_hashed(columns, self.type, "partition")
        self.query.put_in_stage(unit, stage)
        return self.add(specification, unit=unit)

    def merge(self, unit: str) -> Stream:
        """End a partitioned stage: merge the rows of all parts, in their order, in one unit of this name."""
        if self.query.stage_of(self.unit_name) is None:
            raise InvalidQuery("merge ends a partitioned stage, and there is none: begin one with partition(...)")
        if not unit or self.query.stage_of(unit) is not None:
            raise InvalidQuery(f"merge({unit!r}) needs the name of a unit that is not partitioned")
        return self.add(MergeParts(), unit=unit)

    def sink(self, name: str) -> OperatorPlan:
        """End the stream: its rows leave the query under this name. A partitioned stream is merged first."""
        if self.query.stage_of(self.unit_name) is not None:
            return self.merge(f"{name} merge").sink(name)
        # Rows must pass through a unit, which numbers and retains them.
        stream = self.select(*self.type.schema.names) if self.query.is_source(self.name) else self
        self.query.add_sink(name, stream)
        return self.query

    def _map(
        self,
        function: RowsFunction,
        schema: Schema | None,
        time: str | None,
        deterministic: bool,
        *,
        flat: bool,
        name: str | None,
    ) -> Stream:
        schema, time = self._schema(schema, time)
        return self.add(MapRows(function, schema, time, flat, deterministic), name=name)

    def _schema(self, schema: Schema | None, time: str | None) -> tuple[Any, str]:
        return self.type.schema if schema is None else as_schema(schema), time or self.type.time
