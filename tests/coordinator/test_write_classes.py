"""The class of a file, against a table made by hand from the layout that Spark documents for checkpoints."""

from __future__ import annotations

import pytest

from peacefs.coordinator.operations.write_classes import WriteClasses, changelog_roots_max
from peacefs.peace.recurrences import Recurrences
from peacefs.protocol.errors import BadRequest

ID = "3f1c9a2e-8d7b-4a46-9c55-0a1b2c3d4e5f"

TABLE = [
    ("/q/offsets/12", "/q", "blocking"),
    ("/q/commits/12", "/q", "blocking"),
    (f"/q/offsets/.12.{ID}.tmp", "/q", "blocking"),
    ("/q/metadata", "/q", "blocking"),
    ("/q/sources/0/0", "/q", "blocking"),
    ("/q/state/0/3/12.delta", "/q", "blocking"),
    (f"/q/state/0/3/.12.delta.{ID}.TID7.tmp", "/q", "blocking"),
    ("/q/state/0/3/12.changelog", "/q", "blocking"),
    (f"/q/state/0/3/12_{ID}.changelog", "/q", "blocking"),
    ("/q/state/0/3/left-keyToNumValues/12.delta", "/q", "blocking"),
    ("/q/state/0/3/12.snapshot", "/q", "due"),
    (f"/q/state/0/3/.12.snapshot.{ID}.TID7.tmp", "/q", "due"),
    ("/q/.run-3-5/offsets/12", "/q", "blocking"),
    ("/tables/day=1/part-0000.parquet", "/tables/day=1", "bulk"),
    ("/home/me/dump.tar", "/home/me", "bulk"),
    ("/state/of/the/art.pdf", "/state/of/the", "bulk"),
    ("/offsets/readme/notes.txt", "/offsets/readme", "bulk"),
]


@pytest.mark.parametrize(("path", "root", "word"), TABLE)
def test_class_and_root_of_a_path(path: str, root: str, word: str) -> None:
    key = WriteClasses(Recurrences()).key(path)
    assert (key.root, key.write_class.word) == (root, word)


@pytest.mark.parametrize("name", ["12.zip", f"12_{ID}.zip", "SSTs/000012-uuid.sst", "logs/000011-uuid.log"])
def test_a_snapshot_of_rocksdb_is_due_only_if_the_query_writes_changelogs(name: str) -> None:
    """Without changelogs a batch waits until RocksDB's files are uploaded."""
    classes = WriteClasses(Recurrences())
    assert classes.key(f"/q/state/0/3/{name}").write_class.word == "blocking"
    classes.key("/other/state/0/3/12.changelog")
    assert classes.key(f"/q/state/0/3/{name}").write_class.word == "blocking"
    classes.key("/q/state/0/3/12.changelog")
    assert classes.key(f"/q/state/0/3/{name}").write_class.word == "due"


def test_the_writers_word_counts_and_a_log_that_is_flushed_is_blocking() -> None:
    classes = WriteClasses(Recurrences())
    assert classes.key("/q/offsets/12", "bulk").write_class.word == "bulk"
    assert classes.key("/logs/wal", flushed=True).write_class.word == "blocking"
    with pytest.raises(BadRequest, match="no class of writes 'urgent'; there are blocking, due, bulk"):
        classes.key("/x", "urgent")


def test_checkpoints_of_the_io_service_belong_to_their_unit() -> None:
    key = WriteClasses(Recurrences()).key("/c/.unit-a-17.0123456789ab.writing/part-0", "blocking")
    assert key.root == "/c/unit-a"


def test_what_is_remembered_of_changelogs_is_bounded() -> None:
    classes = WriteClasses(Recurrences())
    for number in range(changelog_roots_max + 1):
        classes.key(f"/q{number}/state/0/0/1.changelog")
    assert classes.key("/q0/state/0/0/1.zip").write_class.word == "blocking"
    assert classes.key("/q1/state/0/0/1.zip").write_class.word == "due"
