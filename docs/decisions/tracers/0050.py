import pyarrow as pa

from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.core.determinants import EventKind, UnitEvent
from peacefs.dataflow.core.messages import EventsHappened
from peacefs.dataflow.core.unit_history import HistoryReader, UnitHistory
from benchmarks.dataflows.seeded import Kill, SeededRun
from peacefs.dataflow.model.phases import Phases, pack
from peacefs.dataflow.techniques.sguard import SGuard
from peacefs.dataflow.techniques.upstream_backup import UpstreamBackup

# A history: events are kept once and in order, phases by key; a reader gets it in parts.
history = UnitHistory()
events = tuple(UnitEvent(EventKind.ROWS, "in", number) for number in range(1, 3001))
assert history.add(EventsHappened("unit", 1, 1, events[:2000]))
assert history.add(EventsHappened("unit", 1, 1001, events[1000:])) and history.last == 3000
assert not history.add(EventsHappened("unit", 1, 3005, events[:1]))
for place in (1, 2):
    keys = pa.table({"key": ["a", f"b {place}"], "__rows": [place, place]})
    history.begin_after(500 * place, pack({"windows": Phases(keys=keys)}))
reader = HistoryReader(2)
while not reader.add(history.part("unit", 2, reader.part)):
    pass
assert reader.log.first == 1001 and reader.log.since(1000) == events[1000:]
assert reader.phases["windows"].keys.to_pydict() == {"key": ["a", "b 1", "b 2"], "__rows": [2, 1, 2]}

# A union into windows of rows, read by two units. What one had before a failure is made again for the other.
schema = pa.schema([("at", pa.timestamp("us")), ("n", pa.int64())])
query = Query("counted")
left, right = (query.source(name, schema, time="at") for name in ("left", "right"))
sums = left.union(right).count_window(3).aggregate(F.sum("n"), F.count())
for sink in ("out", "copy"):
    sums.unit(sink).filter(F.col("count") == 3).sink(sink)
rows = {
    name: [
        pa.RecordBatch.from_pydict({"at": [at, at], "n": [4**at, 4 ** (at + 1)]}, schema=schema)
        for at in range(b, 24, 4)
    ]
    for b, name in ((0, "left"), (2, "right"))
}
for technique in (UpstreamBackup(precise=True), SGuard(interval_s=0.1)):
    calm = SeededRun(query.network(), technique, rows, seed=1).run()
    (node,) = {node for unit, node in calm.places if unit == "counted"}
    for step in range(20, calm.steps, 40):
        run = SeededRun(query.network(), technique, rows, seed=1, failures=[Kill(step, node)]).run()
        found = run.rows("out")
        # Each row is in one sum: no digit of the total is above 1.
        assert found == run.rows("copy") and sum(total for _, total, _ in found) == (4**24 - 1) // 3, step
