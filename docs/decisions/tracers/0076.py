from dataclasses import replace

import pyarrow as pa

from benchmarks.dataflows.failures import Kill
from benchmarks.dataflows.seeded import SeededRun
from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.techniques.active_standby import ActiveStandby
from peacefs.dataflow.techniques.cec import CEC
from peacefs.dataflow.techniques.sguard import SGuard

query = Query("hybrid")
rows = query.source("in", {"key": "string", "at": "timestamp", "value": "int64"}, time="at")
large = rows.filter(F.col("value") >= 0).unit("windows", technique=CEC()).key_by("key").count_window(2)
counted = large.aggregate(F.sum("value")).unit("alarms", technique=ActiveStandby())
counted.filter(F.col("sum_value") > 0).sink("out")
network = query.network()

schema = network.types["in"].schema
batches = [pa.RecordBatch.from_pylist([{"key": "a", "at": at, "value": at}], schema) for at in range(1, 21)]
for step in range(50, 400, 70):
    kill = Kill(step, "node-2", back_after_s=0.3)
    run = SeededRun(network, SGuard(interval_s=0.1), {"in": batches}, seed=1, nodes=4, failures=[kill])
    assert [row[-1] for row in run.run().rows("out")] == [at + at + 1 for at in range(1, 20, 2)]
