from peacefs.coordinator.namespace import operations as namespace, quotas
from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.metadata.model import NamespaceUsage, Quota
from peacefs.coordinator.metadata.sqlite.store import store_in_memory
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.protocol.errors import NamesQuotaExceeded

metadata = store_in_memory()
metadata.begin_epoch()


def mkdirs(path):
    return run_now(metadata, lambda tx: namespace.mkdirs(tx, parse_path(path), "ann", 0o755, now_ms=1))


mkdirs("/checkpoints/alerts")
run_now(metadata, lambda tx: quotas.set_quota(tx, parse_path("/checkpoints"), 3, None))
mkdirs("/checkpoints/totals")
try:
    mkdirs("/checkpoints/another")
    raise AssertionError("it should have been refused")
except NamesQuotaExceeded as refused:
    assert refused.message.endswith("of directory /checkpoints is exceeded: quota=3 file count=4")
assert namespace.quota(metadata.reader(), parse_path("/checkpoints")) == Quota(3, None, NamespaceUsage(3, 0))
metadata.close()
