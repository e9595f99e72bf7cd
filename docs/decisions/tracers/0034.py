import threading
import time

import numpy as np
import pyarrow as pa

from peacefs.state import Checkpointer, MemoryStore, PageManager, UnorderedMap
from peacefs.state.kernels import fixed_map

pages = PageManager(memory_bytes_max=64 << 20)
schema = pa.schema([("key", pa.int64()), ("count", pa.int64())])
counts = UnorderedMap.create(pages.page_set("counts"), schema, "key")
keys = np.random.default_rng(1).integers(0, 50_000, 1_000_000)
counts.add_at(keys, 1)
found, items = counts.find_numpy(np.arange(50_000))
assert (items["count"] == np.bincount(keys, minlength=50_000)).all()

# Another schema of as many words needs nothing compiled: kernels know words alone.
compiled = len(fixed_map.locate.signatures)
times = UnorderedMap.create(
    pages.page_set("times"), pa.schema([("at", pa.timestamp("ms")), ("mean", pa.float64())]), "at"
)
times.upsert(np.array(["2026-01-01"], "M8[ms]"), [1.5])
assert len(fixed_map.locate.signatures) == compiled == 1

# A kernel runs without the interpreter's lock: this thread goes on meanwhile.
working = threading.Thread(target=lambda: [counts.add_at(keys, 1) for _ in range(5)])
working.start()
rounds = 0
while working.is_alive():
    rounds += 1
    time.sleep(0.001)
assert rounds > 10

# A page that is being written is cloned when it changes, once.
store = MemoryStore()
checkpointer = Checkpointer(pages, store, "tracer")
store.held = True
running = checkpointer.begin()
before = pages.clones
counts.add_at(keys, 1)
counts.add_at(keys, 1)
assert pages.clones - before == counts.memory_bytes // pages.page_bytes - 1
running.cancel()
checkpointer.close()
