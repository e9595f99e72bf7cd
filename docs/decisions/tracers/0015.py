from peacefs.coordinator.namespace import operations as namespace, query_runs as runs
from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.metadata.model import RecordedRun
from peacefs.coordinator.metadata.sqlite.store import store_in_memory
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.protocol.errors import RunSuperseded

metadata = store_in_memory()
metadata.begin_epoch()
root = parse_path("/checkpoints/orders")


def mkdirs(path):
    return run_now(metadata, lambda tx: namespace.mkdirs(tx, parse_path(path), "ann", 0o755, now_ms=1))


mkdirs(str(root))
locations = []
for number in (1, 2):
    run = RecordedRun(number, "ann", "host", 77, since_ms=1, ended_ms=None)
    run_now(metadata, lambda tx, run=run: runs.begin(tx, root, run))
    locations.append(str(runs.location(root, number)))
older, younger = locations
assert mkdirs(f"{younger}/offsets")
try:
    mkdirs(f"{older}/commits")
except RunSuperseded:
    pass
else:
    raise AssertionError("the older run still writes")
seen = namespace.list_page(metadata.reader(), parse_path(older))
assert [entry.name for entry in seen.entries] == ["offsets"]
metadata.close()
