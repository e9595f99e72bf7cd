"""The check of a store finds and names each fault, and finds nothing in a sound store."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from peacefs.coordinator.metadata.model import RenameMode
from peacefs.coordinator.metadata.sqlite import page_sums
from peacefs.coordinator.metadata.sqlite.check import Findings, check
from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.coordinator.namespace import snapshot_restore
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.coordinator.namespace.reclaim import reclaim_step
from peacefs.protocol.errors import StartupError

from .conftest import Space


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Make a store with files, directories, renames, replacements, deletions, and a partly reclaimed tree."""
    path = tmp_path / "metadata.sqlite"
    metadata = open_store(path, owner="root")
    metadata.begin_epoch()
    space = Space(metadata)
    for number in range(20):
        space.create(f"/d/{number}", 10, 20, 30)
    space.create("/d/0", 5, overwrite=True)
    space.create("/empty")
    space.mkdirs("/a/b/c")
    space.rename("/a", "/z", RenameMode.STRICT)
    for number in range(20):
        space.create(f"/doomed/{number}/file", *[7] * 20)
    space.delete("/doomed")
    space.commit(lambda tx: reclaim_step(tx, 50))
    metadata.close()
    return path


def test_commits_that_the_log_has_alone_are_told_of_and_not_counted(store: Path) -> None:
    before = check(store, lambda name, number, steps: None)
    metadata = open_store(store, owner="root")
    metadata.begin_epoch()
    space = Space(metadata)
    for number in range(3):
        space.create(f"/late/{number}", 10)
    beside = check(store, lambda name, number, steps: None)
    assert (beside.files, beside.commits_behind) == (before.files, 3), "`Space` has the epoch imaged"
    metadata.close()
    after = check(store, lambda name, number, steps: None)
    assert before.files is not None
    assert (after.files, after.commits_behind, after.problems) == (before.files + 3, 0, [])


def test_snapshots_and_a_restoration_under_way_are_sound(store: Path) -> None:
    metadata = open_store(store, owner="root")
    metadata.begin_epoch()
    space = Space(metadata)
    space.allow_snapshots("/d")
    space.take_snapshot("/d", "s")
    space.create("/d/1", 5, overwrite=True)
    space.delete("/d/2")
    space.commit(lambda tx: snapshot_restore.begin(tx, parse_path("/d"), "s"))
    metadata.close()
    assert checked(store).problems == []


def checked(path: Path) -> Findings:
    return check(path, lambda name, number, steps: None)


def test_a_store_after_all_kinds_of_changes_is_sound(store: Path) -> None:
    findings = checked(store)
    assert findings.problems == []
    assert findings.files is not None and findings.files >= 21
    assert findings.chunks is not None and findings.chunks > 60


_ROWS = "all rows are what was committed"
BREAKAGES = {
    "a chunk is counted as often as it is referred to": "UPDATE chunk SET referrers = 2 WHERE chunk % 5 = 1",
    "a reference leads to a chunk": "DELETE FROM chunk WHERE chunk = (SELECT max(chunk) FROM chunk)",
    "a name leads to a file or directory": "DELETE FROM inode WHERE length = 60",
    "a name is in a directory": "UPDATE entry SET parent = 12345 WHERE name = 'z'",
    "a file or directory has one name": (
        "INSERT INTO entry SELECT parent, 'second', to_tx, from_tx, inode, NULL, NULL, NULL FROM entry "
        "WHERE name = '3'"
    ),
    "every file and directory is found from the root, or waits to be reclaimed": (
        "DELETE FROM entry WHERE name = '4'"
    ),
    "a file uses no more of a chunk than there is": "UPDATE chunk SET length = 1 WHERE length = 30",
    "a file is as long as its chunks together": "UPDATE inode SET length = 61 WHERE length = 60",
    "there is one root, a directory without a name": "DELETE FROM inode WHERE inode = 1",
    "what waits to be reclaimed is there and has no name": "INSERT INTO discarded VALUES (999, 1)",
    "a lease is of a file": "INSERT INTO lease VALUES (999, 1, 'nobody')",
    "only files refer to chunks": "UPDATE inode SET kind = 1 WHERE length = 60",
    "no number is above the epoch, no transaction above the last": "UPDATE meta SET value = 0 WHERE key = 'epoch'",
}


@pytest.mark.parametrize("name", BREAKAGES)
def test_check_names_each_fault_with_examples(store: Path, name: str) -> None:
    with contextlib.closing(sqlite3.connect(store)) as connection:
        assert connection.execute(BREAKAGES[name]).rowcount > 0
        connection.commit()
    page_sums.path_of(store).unlink()
    problems = {problem.name: problem for problem in checked(store).problems}
    assert {name, _ROWS} <= problems.keys(), problems
    assert problems[name].found >= len(problems[name].examples) > 0


def test_a_ring_of_directories_is_found_although_each_has_a_name(store: Path) -> None:
    with contextlib.closing(sqlite3.connect(store)) as connection:
        (b,) = connection.execute("SELECT inode FROM entry WHERE name = 'b'").fetchone()
        connection.execute("UPDATE entry SET parent = ? WHERE name = 'b'", (b,))
        connection.commit()
    page_sums.path_of(store).unlink()
    problem, rows = checked(store).problems
    assert rows.name == _ROWS
    assert problem.name.startswith("every file and directory is found") and problem.found == 2


def test_damaged_pages_are_said_and_the_tables_not_judged(store: Path) -> None:
    content = bytearray(store.read_bytes())
    content[4096 * 3 : 4096 * 5] = b"\xff" * 8192
    store.write_bytes(content)
    findings = checked(store)
    assert [problem.name for problem in findings.problems] == ["pages and indexes are whole"]
    assert findings.files is None


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("dear")
    with pytest.raises(StartupError, match="not peacefs metadata"):
        checked(tmp_path / "letter")
