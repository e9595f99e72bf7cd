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

from peacefs.dataflow.model.durations import Duration, microseconds
from peacefs.dataflow.model.schemas import Schema, as_schema
from peacefs.dataflow.model.stream_type import StreamType
from peacefs.dataflow.model.timing import Timing
from peacefs.dataflow.operators.source_times import SourceTimes
from peacefs.protocol.errors import InvalidQuery

from .network import SourceNode
from .operator_plan import OperatorPlan
from .streams import Stream


class Query(OperatorPlan):
    """A continuous query. Its streams begin with `source` and end with `sink`."""

    def source(
        self,
        name: str,
        schema: Schema | StreamType,
        *,
        time: str | None = None,
        lateness: Duration = "0s",
        idle: Duration | None = None,
        ahead: Duration | None = None,
    ) -> Stream:
        """Begin a stream. `time` names the timestamp column that says when a row happened.

        For a log, pass its `type`, which contains both.

        `lateness`: a row may be this much older than a row before it. Windows, joins and timers of the stream wait
        that long. `idle`: after this long without rows, the source does not hold other inputs back. `ahead`:
        reject a row that is later than all rows before it by more than this, and count it.
        """
        self._free(name)
        if isinstance(schema, StreamType):
            kind = schema if time is None else StreamType(schema.schema, time)
        elif time is None:
            raise InvalidQuery(f"source {name!r} needs to know which column holds the times: time='at'")
        else:
            kind = StreamType(as_schema(schema), time)
        self._sources[name] = SourceNode(name, kind)
        timing = Timing(
            microseconds(lateness, "source(lateness)", least=0),
            None if idle is None else microseconds(idle, "source(idle)"),
        )
        stream = Stream(self, name, kind, self.name, timing)
        if ahead is None:
            return stream
        return stream.add(SourceTimes(microseconds(ahead, "source(ahead)")), name=f"{name} times")
