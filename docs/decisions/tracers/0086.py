from datetime import datetime, timedelta

import pyarrow as pa
from benchmarks.dataflows.seeded import SeededRun

from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.techniques.amnesia import Amnesia

noon = datetime(2026, 1, 1, 12)
schema = pa.schema([("key", pa.string()), ("at", pa.timestamp("us"))])


def rows(*seconds):
    return [{"key": "a", "at": noon + timedelta(seconds=at)} for at in seconds]


query = Query("sessions")
events = query.source("in", schema, time="at", lateness="5s", ahead="1 day")
events.key_by("key").session_window("10s").aggregate(F.count()).sink("out")
events.late().sink("far")
given = pa.Table.from_pylist(rows(0, 14, 10**9, 12, 8, 40), schema)
for size in (1, 6):
    outcome = SeededRun(query.network(), Amnesia(), {"in": given.to_batches(max_chunksize=size)}, seed=1).run()
    # The row at 8 s merges two sessions, as it is within the lateness; the row in 31 years closes nothing.
    assert [row["count"] for batch in outcome.sinks["out"] for row in batch.to_pylist()] == [4, 1]
    assert sum(batch.num_rows for batch in outcome.sinks["far"]) == 1

clocked = Query("idle")
left, right = (clocked.source(name, schema, time="at", idle="1s") for name in ("left", "right"))
left.key_by("key").join(right.key_by("key"), within="1s").sink("out")
assert clocked.operator_class is OperatorClass.ARBITRARY
