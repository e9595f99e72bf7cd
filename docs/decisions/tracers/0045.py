import random

import pyarrow as pa

from peacefs.dataflow import Query
from peacefs.dataflow.core.determinants import EventLog
from peacefs.dataflow.core.messages import CopyPiece, UnitPlacement
from benchmarks.dataflows.seeded import Kill, SeededRun
from peacefs.dataflow.hosts.standby_copies import StandbyCopies
from peacefs.dataflow.techniques.active_standby import ActiveStandby
from peacefs.dataflow.techniques.passive_standby import PassiveStandby
from peacefs.state import Checkpointer, List, PageManager

# A copy of pages, and one of those that changed since, go from one memory to another.
here, there = StandbyCopies(), StandbyCopies()
pages = PageManager(page_bytes=8192, memory_bytes_max=1 << 24)
numbers = List.create(pages.page_set("numbers"), pa.schema([("n", pa.int64())]))
numbers.extend(range(10_000))
checkpointer = Checkpointer(pages, here, "unit", keep=None)
sizes = []
for sequence in (1, 2):
    checkpointer.begin().result()
    copy = here.take("unit", sequence)
    there.keep("unit", copy)
    sizes.append(len(copy))
    numbers.append(-1)
assert sizes[1] < sizes[0] / 4

# A union of two sources: which node dies, and when, makes no difference to a row that has left.
schema = pa.schema([("at", pa.timestamp("us")), ("n", pa.int64())])


def rows(first):
    return [
        pa.RecordBatch.from_pydict({"at": [first + at, first + at], "n": [first + at, -at]}, schema=schema)
        for at in range(8)
    ]


def draw(batch, state, chance):
    state["rows"] = state.get("rows", 0) + batch.num_rows
    drawn = [state["rows"] * 1000 + chance.randrange(1000) for _ in range(batch.num_rows)]
    return batch.set_column(1, "n", pa.array(drawn))


query = Query("drawn")
left, right = (query.source(name, schema, time="at") for name in ("left", "right"))
left.union(right).process(draw, deterministic=False).sink("out")
for technique in (ActiveStandby(), PassiveStandby()):
    for step in range(10, 90, 16):
        run = SeededRun(
            query.network(),
            technique,
            {"left": rows(0), "right": rows(100)},
            seed=1,
            failures=[Kill(step, "node-1")],
        )
        counted = [n // 1000 for _, n in run.run().rows("out")]
        assert counted == [number // 2 * 2 + 2 for number in range(32)], (technique.name, step)

# The log that makes it so: events have numbers, those that came twice are left out, and none may be missing.
log = EventLog()
assert log.add(1, ["a", "b"]) and log.add(2, ["b", "c"]) and log.last == 3
assert not log.add(5, ["e"])
log.drop(2)
assert log.since(2) == ("c",)
