from peacefs.coordinator.metadata.log.segments import LogFull
from peacefs.coordinator.metadata.sqlite.store import MetadataInMemory, store_in_memory
from peacefs.coordinator.metadata.store import MetadataFull
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path

metadata = store_in_memory()
metadata.begin_epoch()
rows = metadata.rows


def make(path):
    outcome = metadata.attempt(lambda tx: namespace.mkdirs(tx, parse_path(path), "ann", 0o755, 1))
    assert outcome.error is None and outcome.answer


def is_there(store, name):
    store.rows.ahead = 0
    return store.reader().child(store.reader().root, name) is not None


make("/durable")
assert is_there(metadata, "durable"), "a change is seen at once"
assert rows.ahead == rows.last > rows.durable, "whoever has seen it waits for its entry"
entry = metadata.seal()
metadata.write(entry)
metadata.written(entry)
assert is_there(metadata, "durable") and rows.ahead == 0, "nothing to wait for"

make("/refused")
metadata.log.fails = LogFull("the disk is full")
try:
    metadata.flush()
except MetadataFull:
    assert not is_there(metadata, "refused") and is_there(metadata, "durable")
else:
    raise AssertionError("there was no room")

in_image = "SELECT count(*) FROM entry WHERE name = 'durable'"
assert metadata.image.execute(in_image).get == 0, "the image comes later"
after_a_crash = MetadataInMemory(metadata.image, metadata.log)
assert is_there(after_a_crash, "durable"), "a start replays the log"
assert after_a_crash.imaged().execute(in_image).get == 1
