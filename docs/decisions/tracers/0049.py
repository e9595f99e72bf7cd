from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from benchmarks.dataflows.costs import Costs, Traffic
from benchmarks.dataflows.failures import KillRunning
from benchmarks.dataflows.costs import VirtualTimes
from benchmarks.dataflows.seeded import SeededRun
from peacefs.dataflow.techniques.sguard import SGuard
from peacefs.dataflow.model.stream_type import TIME
import pyarrow as pa

schema = pa.schema([("at", TIME), ("value", pa.int64())])
query = Query("tracer")
stream = query.source("in", schema, time="at").filter(F.col("value") >= 0)
stream.unit("second").filter(F.col("value") >= 0, name="slow").sink("out")
rows = [
    pa.record_batch([pa.array([number], pa.int64()).cast(TIME), pa.array([number])], schema=schema)
    for number in range(200)
]


def run(**costs):
    run = SeededRun(
        query.network(),
        SGuard(interval_s=0.05),
        {"in": rows},
        seed=1,
        failures=[KillRunning(1.0, "second")],
        times=VirtualTimes(rows_every_s=0.01, store_s=0.0, costs=Costs(**costs)),
    )
    return run.run()


# The first row is there after r + d; the rows of an interval at most are processed again, and not those that came
# while the failure was noticed.
found = run(delay_s=0.005, redirection_s=0.04, detection_s=0.5, processing_s={"slow": 0.001})
assert 0.045 < found.recovery_s["second"] < 0.045 + 0.015
assert run(delay_s=0.005, redirection_s=0.14).recovery_s["second"] > 0.14
assert len(found.rows("out")) == 200

# Bytes are those of the model, until the failure: about a hundred rows to the unit, and acknowledgements back.
sent = {(flow.kind, flow.subject): size for flow, size in found.bytes.items() if flow.receiver == found.lost_node}
((_, stream),) = [key for key in sent if key[0] is Traffic.DATA]
assert 80 * 50 < sent[Traffic.DATA, stream] < 110 * 50
