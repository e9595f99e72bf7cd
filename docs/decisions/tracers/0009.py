import tempfile
from pathlib import Path
from random import Random

from peacefs.coordinator.metadata.sqlite.backup import back_up, restore
from peacefs.coordinator.metadata.sqlite.store import open_store

with tempfile.TemporaryDirectory() as directory:
    store, copy = Path(directory) / "metadata.sqlite", Path(directory) / "copy"
    metadata = open_store(store, owner="ann")
    epoch = metadata.begin_epoch()
    back_up(store, copy, lambda done, total: None)
    metadata.close()
    restored = restore(copy, store, lambda done, total: None, Random(), replace=True)
    metadata = open_store(store, owner="ann")
    assert metadata.reader().gc_floor_held()
    assert metadata.begin_epoch() > restored.epoch > epoch
    metadata.close()
