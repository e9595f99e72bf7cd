from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.metadata.sqlite.store import store_in_memory
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.coordinator.metadata.model import RenameMode
from peacefs.protocol.ids import epoch_of, first_of_epoch
from peacefs.protocol.messages import Receipt, WrittenChunk
from peacefs.protocol.new_file import NewFile

metadata = store_in_memory()
assert [metadata.begin_epoch(), metadata.begin_epoch(8)] == [1, 9]
chunk = WrittenChunk(first_of_epoch(9) + 1, first_of_epoch(9) + 2, 10, 0, [Receipt("dn-1", b"")])
file = NewFile(
    path="/checkpoint/offsets/.0.tmp", user="spark", replication=3, block_bytes=1 << 26, request_id="r-1"
)
first = run_now(metadata, lambda tx: namespace.complete_file(tx, file, [chunk], now_ms=1))
again = run_now(metadata, lambda tx: namespace.complete_file(tx, file, [chunk], now_ms=2))
assert first.length == again.length == 10

source, target = parse_path("/checkpoint/offsets/.0.tmp"), parse_path("/checkpoint/offsets/0")
for now_ms in (3, 4):  # the second is a replay, recognised by where the target came from
    assert run_now(metadata, lambda tx: namespace.rename(tx, source, target, RenameMode.STRICT, now_ms)).done

reader = metadata.reader()
assert namespace.status(reader, target).length == 10
assert epoch_of(namespace.status(reader, target).inode) == 9
metadata.close()
