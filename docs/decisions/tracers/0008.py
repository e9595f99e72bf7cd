from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.metadata.model import Lease
from peacefs.coordinator.metadata.sqlite.store import store_in_memory
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.protocol.errors import LeaseExpired
from peacefs.protocol.messages import Receipt, WrittenChunk
from peacefs.protocol.new_file import NewFile

metadata = store_in_memory()
metadata.begin_epoch()
log = parse_path("/log")
file = NewFile(path="/log", user="ann", replication=3, block_bytes=1 << 26, request_id="create")
run_now(metadata, lambda tx: namespace.complete_file(tx, file, [], now_ms=1))
inode = namespace.status(metadata.reader(), log).inode


def complete(lease, request_id, chunk):
    written = WrittenChunk(chunk, chunk, 10, 0, [Receipt("dn-1", b"")])
    wanted = namespace.AppendToComplete("/log", inode, lease, request_id, [written])
    return run_now(metadata, lambda tx: namespace.complete_append(tx, wanted, now_ms=2)).length


paused, successor = Lease(1, "paused"), Lease(2, "successor")
for lease in (paused, successor):
    run_now(metadata, lambda tx, lease=lease: namespace.take_lease(tx, log, inode, lease))
try:
    complete(paused, "a", 100)
except LeaseExpired:
    pass
else:
    raise AssertionError("the older writer is fenced off although it comes first")
assert complete(successor, "b", 200) == 10
assert complete(successor, "b", 200) == 10  # a replay gets the first answer
metadata.close()
