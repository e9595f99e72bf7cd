from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.metadata.model import NamespaceUsage
from peacefs.coordinator.metadata.sqlite.store import MetadataInMemory, store_in_memory
from peacefs.coordinator.namespace import operations as namespace, quotas
from peacefs.coordinator.namespace.paths import parse_path

metadata = store_in_memory()
metadata.begin_epoch()


def mkdirs(path):
    run_now(metadata, lambda tx: namespace.mkdirs(tx, parse_path(path), "ann", 0o755, 1))


for number in range(300):
    mkdirs(f"/d/{number}")
limit = lambda tx: quotas.set_quota(tx, parse_path("/d"), 1000, None)
try:
    run_now(metadata, limit)
    raise AssertionError("300 names are too many to be counted at once")
except quotas.TreeIsLarge as large:
    directory = large.directory

at_tx = run_now(metadata, lambda tx: quotas.begin_count(tx, directory))
mkdirs("/d/later")  # Others go on meanwhile.
found = namespace.content_summary(metadata.reader().at(at_tx, directory), parse_path("/"))
assert found.directories == 301, "as it was when the count began"
run_now(metadata, lambda tx: tx.note_count(directory, NamespaceUsage(found.directories, 0)))
run_now(metadata, limit)
run_now(metadata, lambda tx: tx.end_count(directory, at_tx))
assert namespace.quota(metadata.reader(), parse_path("/d")).used == NamespaceUsage(302, 0)

mkdirs("/e")
begun = run_now(metadata, lambda tx: tx.begin_count(metadata.reader().child(1, "e")))
after_a_crash = MetadataInMemory(metadata.image, metadata.log)
after_a_crash.begin_epoch()
assert after_a_crash.reader().quota_directories() == {directory}, "the count that was begun is gone"
