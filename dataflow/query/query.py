"""Queries, as users write them.

    from peacefs.dataflow import Query, functions as F

    query = Query("logins")
    (
        query.source("events", {"address": "string", "at": "timestamp", "ok": "bool"}, time="at")
        .filter(~F.col("ok"))
        .key_by("address")
        .window("60s", every="1s")
        .aggregate(F.count())
        .filter(F.col("count") > 10)
        .sink("attacks")
    )

A call with an error raises it immediately, with a one-line message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Literal

from peacefs.dataflow.functions import col
from peacefs.dataflow.model.numbers import check_count
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.model.stream_type import StreamType, names_of
from peacefs.dataflow.operators.aggregates import Aggregation
from peacefs.dataflow.operators.count_windows import AggregateCountWindows
from peacefs.dataflow.operators.interface import OperatorSpecification
from peacefs.dataflow.operators.join import JoinWindow
from peacefs.dataflow.operators.key_hashes import check_hashed
from peacefs.dataflow.operators.process import DrawingFunction, Process, StatefulFunction, TableFunction
from peacefs.dataflow.operators.resample import Resample
from peacefs.dataflow.operators.row_operators import Filter, MapRows, RowsFunction, Select, Union
from peacefs.dataflow.operators.sort import BoundedSort
from peacefs.dataflow.operators.time_windows import AggregateTimeWindows
from peacefs.dataflow.recovery.technique import Technique
from peacefs.protocol.errors import InvalidQuery

from .alignment import align_unions
from .durations import Duration, microseconds
from .network import Network, OperatorNode, SinkNode, SourceNode
from .schemas import Schema, as_schema
from .stages import MergeParts, Partition, Stage, expand, in_parts

# Maximum number of parts of a stage. Then the default of `grain_rows`.
dataflow_parts_max: Final = 1024
dataflow_grain_rows: Final = 2048


class Query:
    """A continuous query. Its streams begin with `source` and end with `sink`."""

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name.strip():
            raise InvalidQuery("a query needs a name: Query('logins')")
        self.name = name
        self._sources: dict[str, SourceNode] = {}
        self._operators: dict[str, OperatorNode] = {}
        self._sinks: dict[str, SinkNode] = {}
        # Units that run in parts, and units that have their own techniques.
        self._stages: dict[str, Stage] = {}
        self._techniques: dict[str, Technique] = {}

    def source(self, name: str, schema: Schema | StreamType, *, time: str | None = None) -> Stream:
        """Begin a stream. `time` names the timestamp column that says when a row happened.

        For a log, pass its `type`, which contains both.
        """
        self._free(name)
        if isinstance(schema, StreamType):
            kind = schema if time is None else StreamType(schema.schema, time)
        elif time is None:
            raise InvalidQuery(f"source {name!r} needs to know which column holds the times: time='at'")
        else:
            kind = StreamType(as_schema(schema), time)
        self._sources[name] = SourceNode(name, kind)
        return Stream(self, name, self._sources[name].type, unit=self.name)

    def network(self) -> Network:
        """Return the query as one value. Raises InvalidQuery if something is missing."""
        operators = align_unions(self._operators.values())
        network = Network(self.name, tuple(self._sources.values()), operators, tuple(self._sinks.values()))
        whole = replace(
            expand(self.name, network.sources, network.operators, network.sinks, self._stages)
            if self._stages
            else network,
            techniques=in_parts(self._techniques, self._stages),
        )
        if not network.sinks:
            raise InvalidQuery(f"query {self.name!r} has no sink: end a stream with sink('name')")
        read = {name for operator in network.operators for name in operator.inputs}
        read |= {sink.input for sink in network.sinks}
        for node in network.producers:
            if node.name not in read:
                raise InvalidQuery(
                    f"nothing reads the stream of {node.name!r}: end it with sink('name') or remove it"
                )
        assert whole.units or not whole.operators
        return whole

    @property
    def operator_class(self) -> OperatorClass:
        """The class of its most general operator, which determines how a failure can affect the output."""
        return self.network().operator_class

    # -- for streams ----------------------------------------------------------------------------------

    def add_operator(
        self,
        specification: OperatorSpecification,
        inputs: tuple[Stream, ...],
        name: str | None,
        *,
        unit: str | None = None,
    ) -> Stream:
        """Add an operator, and return its output. `unit` is given for operators that begin or end a stage."""
        for stream in inputs[1:]:
            if not isinstance(stream, Stream):
                raise InvalidQuery(f"{specification.kind} needs another stream, and not {stream!r}")
            if stream.query is not self:
                raise InvalidQuery(
                    f"{specification.kind} of streams of two queries, {self.name!r} and {stream.query.name!r}: "
                    "begin both at one query's sources"
                )
        types = tuple(stream.type for stream in inputs)
        made = specification.output_type(types)
        name = name or self._name_for(specification)
        self._free(name)
        if unit is None:
            unit = inputs[0].unit_name
            self._check_stage(specification, inputs)
        names = tuple(stream.name for stream in inputs)
        self._operators[name] = OperatorNode(name, unit, specification, names, types, made)
        return Stream(self, name, made, unit)

    def stage_of(self, unit: str) -> Stage | None:
        """Return the stage that a unit belongs to; None if it does not run in parts."""
        return self._stages.get(unit)

    def put_in_stage(self, unit: str, stage: Stage) -> None:
        """Let a unit run in parts. Raises InvalidQuery if it already exists with other parts."""
        known = self._stages.get(unit)
        if known not in (None, stage) or (known is None and self._is_unit(unit)):
            raise InvalidQuery(
                f"query {self.name!r} has a unit {unit!r} already, which is partitioned otherwise: give the parts "
                "another name with partition(..., name=...)"
            )
        self._stages[unit] = stage

    def recover_by(self, unit: str, technique: Technique) -> None:
        """Give a unit its own technique. Raises InvalidQuery if it already has another one."""
        if not isinstance(technique, Technique):
            raise InvalidQuery(
                f"unit {unit!r}: a technique is wanted, as unit({unit!r}, technique=CEC()), and not {technique!r}"
            )
        if self._techniques.setdefault(unit, technique) != technique:
            raise InvalidQuery(
                f"unit {unit!r} is given two techniques, {self._techniques[unit].name} and {technique.name}: give "
                "it one, or name another unit"
            )

    def is_source(self, stream: str) -> bool:
        """Return True if a stream is a source, and not the output of an operator."""
        return stream in self._sources

    def add_sink(self, name: str, stream: Stream) -> None:
        if not isinstance(name, str) or not name:
            raise InvalidQuery("sink needs a name: sink('attacks')")
        if name in self._sinks:
            raise InvalidQuery(f"query {self.name!r} has a sink {name!r} already: give this one another name")
        self._sinks[name] = SinkNode(name, stream.name, stream.type)

    def _is_unit(self, name: str) -> bool:
        return name == self.name or any(node.unit == name for node in self._operators.values())

    def _check_stage(self, specification: OperatorSpecification, inputs: tuple[Stream, ...]) -> None:
        stages = [self._stages.get(stream.unit_name) for stream in inputs]
        stage = stages[0]
        if any(other != stage for other in stages):
            raise InvalidQuery(
                f"{specification.kind} of streams that are not partitioned alike: give both the same "
                "partition(...), or merge() them before"
            )
        keys = getattr(specification, "keys", None)
        if stage is None or keys is None:
            return
        missing = [key for key in stage.keys if key not in keys]
        if missing:
            raise InvalidQuery(
                f"{specification.kind} in a stage that is partitioned by {names_of(stage.keys)} needs "
                f"{missing[0]!r} among its keys, so that all rows of a key are in one part: add it to key_by, or "
                "merge() before"
            )

    def _name_for(self, specification: OperatorSpecification) -> str:
        number = 1 + sum(node.specification.kind == specification.kind for node in self._operators.values())
        while (name := f"{specification.kind}-{number}") in self._operators:
            number += 1
        return name

    def _free(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise InvalidQuery(f"query {self.name!r} has a source or an operator named {name!r}: give it a name")
        if name in self._sources or name in self._operators:
            raise InvalidQuery(
                f"query {self.name!r} has a {name!r} already: give each source and operator its own name"
            )


class Stream:
    """Rows of one type. Each method returns a new stream. Several readers may use the same stream."""

    def __init__(self, query: Query, name: str, type: StreamType, unit: str) -> None:
        self.query = query
        self.name = name
        self.type = type
        self.unit_name = unit

    # -- row by row ---------------------------------------------------------------------------------------

    def filter(self, condition: Any, *, name: str | None = None) -> Stream:
        """Keep the rows for which an expression is true: `filter(col("status") == 401)`."""
        return self.query.add_operator(Filter(condition), (self,), name)

    def select(self, *columns: str, name: str | None = None, **computed: Any) -> Stream:
        """Keep columns, and compute others: `select("at", "address", bits=col("bytes") * 8)`."""
        twice = [column for column in columns if column in computed]
        if twice:
            raise InvalidQuery(f"select names {names_of(twice)} twice: as a column and as a computed one")
        self.type.require(columns, "select")
        names = (*columns, *computed)
        expressions = (*(col(column) for column in columns), *computed.values())
        return self.query.add_operator(Select(names, expressions), (self,), name)

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
        return self.query.add_operator(Union(), (self, *others), name)

    def sort(self, within: Duration, *, name: str | None = None) -> Stream:
        """Sort rows by time. A row that is late by more than `within` is left out."""
        return self.query.add_operator(BoundedSort(microseconds(within, "sort(within)", least=0)), (self,), name)

    def key_by(self, *columns: str) -> KeyedStream:
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
        lateness: Duration = "0s",
        timeout: Duration | None = None,
    ) -> WindowedStream:
        """Group rows by windows of time, over all keys together. See `KeyedStream.window`."""
        return KeyedStream(self, ()).window(size, every, lateness=lateness, timeout=timeout)

    def count_window(
        self, size: int, every: int | None = None, *, timeout: Duration | None = None
    ) -> WindowedStream:
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
        return self.query.add_operator(process, (self,), name)

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
        return Stream(self.query, self.name, self.type, name)

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
        return self.query.add_operator(specification, (self,), None, unit=unit)

    def merge(self, unit: str) -> Stream:
        """End a partitioned stage: merge the rows of all parts, in their order, in one unit of this name."""
        if self.query.stage_of(self.unit_name) is None:
            raise InvalidQuery("merge ends a partitioned stage, and there is none: begin one with partition(...)")
        if not unit or self.query.stage_of(unit) is not None:
            raise InvalidQuery(f"merge({unit!r}) needs the name of a unit that is not partitioned")
        return self.query.add_operator(MergeParts(), (self,), None, unit=unit)

    def sink(self, name: str) -> Query:
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
        return self.query.add_operator(MapRows(function, schema, time, flat, deterministic), (self,), name)

    def _schema(self, schema: Schema | None, time: str | None) -> tuple[Any, str]:
        return self.type.schema if schema is None else as_schema(schema), time or self.type.time


class KeyedStream:
    """A stream whose rows are grouped by columns."""

    def __init__(self, stream: Stream, keys: tuple[str, ...]) -> None:
        self._stream = stream
        self._keys = keys

    def window(
        self,
        size: Duration,
        every: Duration | None = None,
        *,
        lateness: Duration = "0s",
        timeout: Duration | None = None,
    ) -> WindowedStream:
        """Group rows by windows of time, of `size`, beginning at each multiple of `every`.

        A window is emitted when a row arrives that is later than its end by `lateness`, or, with `timeout`, when
        no row has arrived for that long. Rows that are older than the end of an emitted window are left out.
        """
        size_us = microseconds(size, "window(size)")
        every_us = size_us if every is None else microseconds(every, "window(every)")
        late_us = microseconds(lateness, "window(lateness)", least=0)
        timeout_us = None if timeout is None else microseconds(timeout, "window(timeout)")
        return WindowedStream(
            self._stream,
            lambda aggregations: AggregateTimeWindows(
                self._keys, size_us, every_us, aggregations, late_us, timeout_us
            ),
        )

    def count_window(
        self, size: int, every: int | None = None, *, timeout: Duration | None = None
    ) -> WindowedStream:
        """Group rows of a key by windows of `size` rows, with a new window every `every` rows."""
        every = size if every is None else every
        for each in (size, every):
            check_count(f"count_window({size!r}, every={every!r})", each, least=1)
        timeout_us = None if timeout is None else microseconds(timeout, "count_window(timeout)")
        return WindowedStream(
            self._stream,
            lambda aggregations: AggregateCountWindows(self._keys, size, every, aggregations, timeout_us),
        )

    def join(self, other: KeyedStream, within: Duration, *, name: str | None = None) -> Stream:
        """Join rows of two streams that have equal keys and whose times differ by at most `within`."""
        if not isinstance(other, KeyedStream) or other._keys != self._keys:
            raise InvalidQuery(
                f"join needs a stream with the same keys: join(other.key_by({names_of(self._keys)}), ...)"
            )
        specification = JoinWindow(self._keys, microseconds(within, "join(within)", least=0))
        return self._stream.query.add_operator(specification, (self._stream, other._stream), name)

    def resample(
        self, *columns: str, every: Duration, method: Literal["last", "linear"] = "last", name: str | None = None
    ) -> Stream:
        """Give values at multiples of `every`: the last value so far, or interpolated between two rows."""
        specification = Resample(self._keys, columns, microseconds(every, "resample(every)"), method)
        return self._stream.query.add_operator(specification, (self._stream,), name)


class WindowedStream:
    """A stream whose rows are grouped by windows."""

    def __init__(self, stream: Stream, specification: Any) -> None:
        self._stream = stream
        self._specification = specification

    def aggregate(self, *aggregations: Aggregation, name: str | None = None, **named: Aggregation) -> Stream:
        """Compute one row per window and key: `aggregate(count(), largest=max("bytes"))`."""
        for given in (*aggregations, *named.values()):
            if not isinstance(given, Aggregation):
                raise InvalidQuery(f"aggregate takes functions as count() and max('bytes'), and not {given!r}")
        every = (*aggregations, *(each.alias(alias) for alias, each in named.items()))
        if not every:
            raise InvalidQuery("aggregate needs a function: aggregate(count())")
        return self._stream.query.add_operator(self._specification(every), (self._stream,), name)
