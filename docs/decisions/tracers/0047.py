import time

from peacefs.coordinator.journal.memory import JournalInMemory, JournalServer
from peacefs.coordinator.journal.writer import JournalWriter
from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.metadata.sqlite.store import store_in_memory
from peacefs.coordinator.metadata.store import MetadataFault
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path

server = JournalServer(time.monotonic)


def coordinator():
    writer = JournalWriter(JournalInMemory(server))
    return writer, store_in_memory(journal=writer)


def make(metadata, path):
    return run_now(metadata, lambda tx: namespace.mkdirs(tx, parse_path(path), "ann", 0o755, 1))


(first, leader), (second, standby) = coordinator(), coordinator()
assert first.take(0, 1) and leader.begin_epoch() == 1
assert make(leader, "/acknowledged")

assert second.take(1, 2)  # from here on nobody else appends
try:
    make(leader, "/too-late")
except MetadataFault as fault:
    assert "epoch 1 is over" in str(fault)
else:
    raise AssertionError("two coordinators have committed")
standby.apply(JournalInMemory(server).read(standby.journal_place().number, 100))
assert standby.begin_epoch() == 2
assert namespace.status(standby.reader(), parse_path("/acknowledged")) is not None
