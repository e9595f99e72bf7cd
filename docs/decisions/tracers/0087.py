"""Decision 87: a source repeats the order that it has written, and a sink goes on after the number that it reads."""

import pyarrow as pa

from peacefs.dataflow.connectors.interface import Slice
from peacefs.dataflow.connectors.sink_progress import CommitRule, SinkProgress
from peacefs.dataflow.connectors.source_history import SourceHistory

history = SourceHistory("topic")
history.add([Slice("1", 0, 5, 5), Slice("0", 0, 2, 2), Slice("1", 5, 9, 3)])
history.release(6)
resumed = SourceHistory.decode(history.encode())
assert (resumed.before, [(each.part, each.begin) for each in resumed.slices]) == (5, [("0", 0), ("1", 5)])
assert {part: place.end for part, place in resumed.starts.items()} == {"0": 0, "1": 5}

rows = pa.RecordBatch.from_pydict({"n": [1, 2, 3, 4]})
sink = SinkProgress(0, CommitRule(interval_s=1.0, rows_max=100))
sink.put(1, rows)
assert sink.prepare(0.0).last == 4
# The commit failed or succeeded in part: the other side says that it has two rows.
sink.restart(2)
again = sink.prepare(0.0)
assert (again.first, again.rows.to_pydict()) == (3, {"n": [3, 4]})
