import numpy as np
import pyarrow as pa

from peacefs.dataflow.unit_state.interface import Accumulator
from peacefs.dataflow.unit_state.paged_state import PagedState
from peacefs.state import Checkpointer, MemoryStore, PageManager

store = MemoryStore()
accumulators = [
    Accumulator("count", "rows", pa.int64()),
    Accumulator("sum", "sum", pa.float64(), "value"),
]
keys = pa.schema([("key", pa.string())])


def open_state(sequence=None):
    pages = PageManager(memory_bytes_max=1 << 30)
    checkpointer = Checkpointer(pages, store, "unit", keep=None)
    if sequence is not None:
        checkpointer.load(sequence)
    state = PagedState(pages, checkpointer)
    return pages, state, state.groups("panes", keys, accumulators)


pages, state, groups = open_state()
names = pa.array([f"host-{number}" for number in range(100_000)])
random = np.random.default_rng(1)
values = pa.array(random.random(100_000))
groups.add(7, pa.record_batch({"key": names, "value": values}))
groups.add(8, pa.record_batch({"key": names[:10], "value": values[:10]}))

# The first checkpoint writes all pages, the next one those that changed: a few of hundreds.
capture = state.capture(1, {"inputs": {}, "outputs": {}})
groups.add(8, pa.record_batch({"key": names[:10], "value": values[:10]}))
first = capture.start().result()
second = state.capture(2, {"inputs": {}, "outputs": {}}).start().result()
assert first.pages_written > 100 and first.pages_referred == 0
assert second.pages_written < 10 and second.pages_referred > 100

# The capture has what was there then, though the unit went on before it was written.
_, _, loaded = open_state(1)
assert loaded.between(8, 9).column("count").to_pylist() == [1] * 10
_, _, loaded = open_state(2)
assert loaded.between(8, 9).column("count").to_pylist() == [2] * 10

# Sums are the same to the last bit, however rows are cut into batches; nulls are no values.
whole, cut = open_state()[2], open_state()[2]
same = pa.array(["one"] * 1000)
numbers = pa.array([None if number % 7 == 0 else value for number, value in enumerate(random.random(1000))])
whole.add(0, pa.record_batch({"key": same, "value": numbers}))
for begin in range(0, 1000, 17):
    cut.add(0, pa.record_batch({"key": same[begin : begin + 17], "value": numbers[begin : begin + 17]}))
assert whole.between(0, 1) == cut.between(0, 1)

# A bucket that is over gives its pages back at once.
before = pages.memory_bytes
groups.drop_before(8)
assert pages.memory_bytes < before / 10

# "Not now": what was cancelled is in the checkpoint that comes later.
groups.add(9, pa.record_batch({"key": names[:1], "value": values[:1]}))
state.capture(3, {"inputs": {}, "outputs": {}}).cancel()
state.capture(4, {"inputs": {}, "outputs": {}}).start().result()
assert open_state(4)[2].buckets() == [8, 9]
