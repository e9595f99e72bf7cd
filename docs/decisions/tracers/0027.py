from peacefs.coordinator.metadata.epochs import begin_epoch
from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.metadata.sqlite.store import store_in_memory
from peacefs.coordinator.namespace import operations as namespace
from peacefs.protocol.errors import AccessDenied

metadata = store_in_memory()
epochs = begin_epoch(metadata, 0.0, settled_after_s=100.0)
of_the_living, of_the_dead, _later = (epochs.numbering.next() for _ in range(3))
for turn in range(1, 31):
    if turn % 5 == 0:
        run_now(metadata, lambda tx: namespace.keep_chunks(tx, "/f", [of_the_living], 100_000))
    if change := epochs.advance(10.0 * turn):
        epochs.advanced(run_now(metadata, change))
assert of_the_living < epochs.garbage.floor and of_the_dead < epochs.garbage.floor
assert epochs.garbage.is_kept(of_the_living) and not epochs.garbage.is_kept(of_the_dead)
try:
    run_now(metadata, lambda tx: namespace.keep_chunks(tx, "/g", [of_the_dead], 100_000))
except AccessDenied:
    pass
else:
    raise AssertionError("what is garbage stays garbage")
metadata.close()
