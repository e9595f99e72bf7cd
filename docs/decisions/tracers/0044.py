import pyarrow as pa

from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from benchmarks.dataflows.comparison import compare_outputs
from benchmarks.dataflows.costs import VirtualTimes
from benchmarks.dataflows.seeded import Kill, SeededRun
from peacefs.dataflow.model.operator_class import Recovery
from peacefs.dataflow.model.stream_type import TIME
from peacefs.dataflow.techniques.upstream_backup import UpstreamBackup

schema = pa.schema([("key", pa.string()), ("at", TIME), ("value", pa.int64())])
query = Query("first")
windows = query.source("in", schema, time="at").unit("second").key_by("key").window("4s", every="1s")
windows.aggregate(F.count(), F.sum("value")).unit("third").filter(F.col("count") > 0).sink("out")
network = query.network()

# A row every 300 ms; every fifth is late, and some of those too late.
rows = []
for number in range(200):
    late = number % 5 == 0
    at = pa.array([max(number * 300_000 - late * number % 7 * 900_000, 0)], pa.int64()).cast(TIME)
    rows.append(pa.record_batch([pa.array([f"key {number % 3}"]), at, pa.array([number])], schema=schema))


def play(precise, *failures):
    technique = UpstreamBackup(interval_s=0.06, precise=precise)
    run = SeededRun(
        network, technique, {"in": rows}, seed=1, failures=failures, times=VirtualTimes(rows_every_s=0.03)
    )
    return run.run()


# What is kept is what windows of four seconds depend on, however long the run is.
calm = play(True)
expected = calm.rows("out")
assert calm.held_bytes_max + calm.source_held_bytes_max < sum(batch.nbytes for batch in rows) / 2
(node,) = [node for unit, node in calm.places if unit == "second"]

# Begun empty, it gives the same rows; without numbers that go on, windows that say too little come again.
assert all(play(True, Kill(step, node)).rows("out") == expected for step in range(100, 400, 60))
observed = play(False, Kill(300, node)).rows("out")
assert compare_outputs(expected, observed, subject=lambda row: row[:2]) is Recovery.CONVERGENT
