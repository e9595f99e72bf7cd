from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.metadata.sqlite.store import store_in_memory
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.directories import implicit_permission
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.coordinator.operations.viewer import Viewer

metadata = store_in_memory()
metadata.begin_epoch()
assert namespace.status(metadata.reader(), parse_path("/")).permission == 0o755
run_now(metadata, lambda tx: namespace.mkdirs(tx, parse_path("/tmp"), "hdfs", 0o1777, 1))
reader = metadata.reader()
above = reader.pass_through(("tmp",))[-1]
assert implicit_permission(above, 0o644) == 0o755
assert implicit_permission(above, 0o664) == 0o775
assert Viewer("ann", False).sees("ann")
assert not Viewer("ann", False).sees("bob")
