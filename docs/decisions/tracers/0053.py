import msgspec

from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.metadata.sqlite.store import store_in_memory
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path

metadata = store_in_memory()
metadata.begin_epoch()
for name in "abc":
    run_now(metadata, lambda tx: namespace.mkdirs(tx, parse_path(f"/d/{name}"), "ann", 0o755, 1))
page = namespace.list_page(metadata.reader(), parse_path("/d"))
assert [entry.name for entry in page.entries] == ["a", "b", "c"]
assert isinstance(page.entries[0], msgspec.Struct)
metadata.close()
