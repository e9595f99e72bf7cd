import time

from peacefs.coordinator.journal.memory import JournalInMemory, JournalServer
from peacefs.coordinator.journal.writer import JournalWriter, content_of
from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.metadata.journal_chain import JournalDiffers
from peacefs.coordinator.metadata.sqlite.store import store_in_memory
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path

server = JournalServer(time.monotonic)


def coordinator():
    writer = JournalWriter(JournalInMemory(server))
    return writer, store_in_memory(journal=writer)


def make(metadata, path):
    run_now(metadata, lambda tx: namespace.mkdirs(tx, parse_path(path), "ann", 0o755, 1))


def follow(metadata):
    metadata.apply(JournalInMemory(server).read(metadata.read_after, 100))


(first, leader), (second, standby) = coordinator(), coordinator()
assert first.take(0, 1) and leader.begin_epoch() == 1
make(leader, "/both")
follow(standby)
written = [content_of(entry) for entry in JournalInMemory(server).read(0, 10)]
assert [entry.content for entry in standby.log.entries] == written, "the entries as they are"

make(leader, "/lost")
del server.entries[3]  # etcd is put back as it once was, and the other one leads.
assert second.take(1, 2) and standby.begin_epoch(above=1) == 2
make(standby, "/other")
try:
    follow(leader)
except JournalDiffers as differs:
    assert "entry 3 of the journal is not the one that this store has" in str(differs)
else:
    raise AssertionError("two histories were mixed")
