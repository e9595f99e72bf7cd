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

Each call says at once what is wrong with it, in one line.
"""

from __future__ import annotations

from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.model.stream_type import StreamType, names_of
from peacefs.dataflow.operators.interface import OperatorSpecification
from peacefs.protocol.errors import InvalidQuery

from .alignment import align_unions
from .network import Network, OperatorNode, SinkNode, SourceNode
from .schemas import Schema, as_schema
from .stages import Stage, expand
from .stream import Stream


class Query:
    """A continuous query. Its streams begin with `source` and end with `sink`."""

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name.strip():
            raise InvalidQuery("a query needs a name: Query('logins')")
        self.name = name
        self._sources: dict[str, SourceNode] = {}
        self._operators: dict[str, OperatorNode] = {}
        self._sinks: dict[str, SinkNode] = {}
        # Units that run in parts.
        self._stages: dict[str, Stage] = {}

    def source(self, name: str, schema: Schema | StreamType, *, time: str | None = None) -> Stream:
        """Begin a stream. `time` names the column, of type timestamp, that says when a row happened.

        Of a log, give its `type`, which says both.
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
        """Return what was written, as one value. Raises InvalidQuery if something is missing."""
        operators = align_unions(self._operators.values())
        network = Network(self.name, tuple(self._sources.values()), operators, tuple(self._sinks.values()))
        whole = (
            expand(self.name, network.sources, network.operators, network.sinks, self._stages)
            if self._stages
            else network
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
        """The class of its most general operator, which decides what a failure may cost."""
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
        """`unit`: where it runs, of operators with which a stage begins or ends."""
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
        """Let a unit run in parts. Raises InvalidQuery if it is another one by now."""
        known = self._stages.get(unit)
        if known not in (None, stage) or (known is None and self._is_unit(unit)):
            raise InvalidQuery(
                f"query {self.name!r} has a unit {unit!r} already, which is partitioned otherwise: give the parts "
                "another name with partition(..., name=...)"
            )
        self._stages[unit] = stage

    def is_source(self, stream: str) -> bool:
        """Return whether a stream comes from outside, and not from an operator."""
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
