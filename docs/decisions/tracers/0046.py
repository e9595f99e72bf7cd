import pyarrow as pa

from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from benchmarks.dataflows.seeded import Kill, SeededRun
from peacefs.dataflow.techniques.cec import CEC
from peacefs.dataflow.window_checkpoints.extent import CostBenefit, Extent, Targets

schema = pa.schema([("item", pa.int64()), ("at", pa.timestamp("us")), ("price", pa.int64())])
query = Query("prices")
windows = query.source("sales", schema, time="at").key_by("item").count_window(10)
windows.aggregate(F.mean("price"), F.count()).sink("means")
batches = [
    pa.record_batch(
        [
            pa.array([(number * batch * 7) % 13 for number in range(50)]),
            pa.array([batch * 50 + number for number in range(50)]).cast(pa.timestamp("us")),
            pa.array([(number * 31) % 101 for number in range(50)]),
        ],
        schema=schema,
    )
    for batch in range(12)
]


def played(*failures, choice=None):
    technique = CEC(choice, period_s=0.05)
    return SeededRun(query.network(), technique, {"sales": batches}, seed=1, failures=failures).run()


expected = played()
(node,) = {node for _, node in expected.places}
for step in range(0, expected.steps, 5):
    assert played(Kill(step, node)).rows("means") == expected.rows("means")
assert played(Kill(60, node), choice=Targets(1.0, 100)).rows("means") == expected.rows("means")


# Old windows are worth a check, young ones are not; with rarer failures they must be older.
def extent(age_s):
    return Extent(1000, 5000, 10**6, age_s, oldest_windows=10, tuples_saved=100, rows_saved=20_000)


often, rarely = CostBenefit(failures_per_day=1), CostBenefit(failures_per_day=1 / 365)
assert not often.wants_check(extent(0.01)) and often.wants_check(extent(60))
assert not rarely.wants_check(extent(0.1)) and rarely.wants_check(extent(86_400))
