import pyarrow as pa

from peacefs.dataflow import Query, functions as F
from benchmarks.dataflows.seeded import Kill, SeededRun
from peacefs.dataflow.techniques.flux import Flux

schema = pa.schema([("at", pa.timestamp("us")), ("user", pa.int64())])
rows = [
    pa.RecordBatch.from_pydict({"at": [first, first + 1], "user": [first % 7, first % 5]}, schema=schema)
    for first in range(0, 40, 2)
]
query = Query("clicks")
clicks = query.source("clicks", schema, time="at").partition("user", parts=3, name="users", grain_rows=4)
clicks.filter(F.col("user") > 0).sink("out")
expected = [(at, user) for batch in rows for at, user in zip(*batch.to_pydict().values()) if user > 0]
for failures in ([], [Kill(150, "node-2")]):
    run = SeededRun(query.network(), Flux(), {"clicks": rows}, seed=1, nodes=3, failures=failures)
    assert run.run().rows("out") == expected
