from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.cluster.membership import Membership
from peacefs.coordinator.metadata.sqlite.store import store_in_memory
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.coordinator.namespace.retry_cache import RequestKey, reserve_reply
from peacefs.protocol.messages import Register, Usage
from peacefs.protocol.ids import new_request_id

metadata = store_in_memory()
metadata.begin_epoch()
directory = parse_path("/" + "/".join(f"d{depth}" for depth in range(20)))
run_now(metadata, lambda tx: namespace.mkdirs(tx, directory, "ann", 0o755, 1))
statements = []
metadata.image.set_exec_trace(lambda _cursor, statement, _values: statements.append(statement) is None)
reader = metadata.reader()
passed, last = reader.follow([*directory.components[:12], "missing", "too"])
assert not statements and len(passed) == 13 and last.inode == passed[-1]
assert [inode.inode for inode in reader.pass_through(directory.components[:12])] == passed
metadata.image.set_exec_trace(None)

key = RequestKey(new_request_id(), ("complete", "/a"))


def fails(tx):
    assert reserve_reply(tx, key, 10, now_ms=1) is None
    raise ValueError("halfway")


for attempt in (fails, fails):  # the reserved reply of the first went with it
    try:
        run_now(metadata, attempt)
    except ValueError:
        pass
assert run_now(metadata, lambda tx: reserve_reply(tx, key, 10, now_ms=2)) is None
assert run_now(metadata, lambda tx: reserve_reply(tx, key, 10, now_ms=3)).before
metadata.close()

members = Membership()
usage = Usage(capacity_bytes=1 << 40, used_bytes=0, available_bytes=1 << 40)
for number in range(3):
    members.register(0.0, Register(f"dn-{number}", "host", 1, "host", 2, "/rack", usage))
assert members.in_service() is members.in_service()
kept = members.in_service()
members.tick(0.5)
members.heard(0.5, "dn-0", usage)
assert members.in_service() is kept
for now_s in (1.0, 2.0, 3.0, 3.6):  # the others are silent
    members.heard(now_s, "dn-0")
    members.tick(now_s)
assert [node.id for node in members.in_service()] == ["dn-0"]
