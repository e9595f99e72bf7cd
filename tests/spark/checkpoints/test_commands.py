"""`peacefs checkpoint` on a cluster and on a directory of this machine."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from support import checkpoints as made

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster

Peacefs = Callable[..., Result]


@pytest.mark.cluster
def test_checkpoints_of_a_cluster_are_listed_shown_and_verified(cluster: LocalCluster, peacefs: Peacefs) -> None:
    address = f"--coordinator={cluster.http_address}"
    with PeaceFileSystem(cluster.http_address) as files:
        for path, data in made.checkpoint(state_format=2).files.items():
            files.write(path, data)
        files.write("/checkpoints/notes.txt", b"no checkpoint")
        listed = peacefs("ls", "--json", address)
        assert listed.exit_code == 0
        records = {record["root"]: record for record in map(json.loads, listed.stdout.splitlines())}
        record = records[made.ROOT]
        assert (record["root"], record["query"], record["committed"]) == (made.ROOT, made.QUERY, 7)
        assert made.ROOT in peacefs("ls", "/checkpoints", address).stdout
        shown = peacefs("show", made.ROOT, "--stores", address)
        assert shown.exit_code == 0 and "stateStoreSave: 2 partitions" in shown.stdout

        assert peacefs("verify", made.ROOT, address).exit_code == 0
        lost = f"state/0/1/8_{made.uid(1, 8)}.changelog"
        files.delete(f"{made.ROOT}/{lost}")
        refused = peacefs("verify", made.ROOT, "--json", address)
        assert refused.exit_code == 4
        verdict = json.loads(refused.stdout)
        assert (verdict["restarts"], verdict["last_good"]) == (False, 6)
        assert [finding["fault"] for finding in verdict["findings"]] == ["missing"]
        assert peacefs("verify", f"webhdfs://{address.rpartition('/')[2]}{made.ROOT}", "--batch=6").exit_code == 0


def test_the_exit_status_says_how_bad_it_is(local: Path, peacefs: Peacefs) -> None:
    assert peacefs("verify", f"file://{local}").exit_code == 0
    (local / "state/0/_metadata/metadata").unlink()
    survived = peacefs("verify", f"file://{local}")
    assert survived.exit_code == 3 and "a restart survives it" in survived.stdout
    (local / "commits/7").write_bytes(b"")
    stopped = peacefs("verify", f"file://{local}")
    assert stopped.exit_code == 4
    assert "damaged: commits/7: empty" in stopped.stdout and "the last good one is 6" in stopped.stdout
    (local / "metadata").unlink()
    hopeless = peacefs("verify", f"file://{local}")
    assert hopeless.exit_code == 5 and "no batch is good" in hopeless.stdout


def test_what_a_newer_spark_wrote_is_not_judged_and_commits_that_are_gone_are_called_that(
    local: Path, peacefs: Peacefs
) -> None:
    (local / "commits/7").write_bytes(b"v9\n{}")
    newer = peacefs("verify", f"file://{local}")
    assert newer.exit_code == 4 and "too new: commits/7: version 9" in newer.stdout
    assert "batch 7 cannot be judged: a newer Spark wrote it" in newer.stdout
    assert "the last good one is 6" in newer.stdout
    shutil.rmtree(local / "commits")
    gone = peacefs("verify", f"file://{local}")
    assert gone.exit_code == 5 and "no batch is said to be done, and a query cannot go on" in gone.stdout
    assert "None" not in gone.stdout


def test_notes_change_no_exit_status(local: Path, peacefs: Peacefs) -> None:
    shutil.rmtree(local / "state")
    noted = peacefs("verify", f"file://{local}")
    assert noted.exit_code == 0 and "note: state: there is none" in noted.stdout


def test_what_is_no_checkpoint_is_refused_in_one_line(tmp_path: Path, peacefs: Peacefs) -> None:
    for command in ("show", "verify"):
        for path, said in ((tmp_path, "no checkpoint"), (tmp_path / "absent", "no directory")):
            refused = peacefs(command, f"file://{path}")
            assert refused.exit_code == 1
            assert said in refused.stderr and len(refused.stderr.splitlines()) == 1
    assert peacefs("verify", "file://elsewhere/x").exit_code == 1
    assert peacefs("ls", f"file://{tmp_path}/absent").exit_code == 1
    empty = peacefs("ls", f"file://{tmp_path}")
    assert (empty.exit_code, empty.stdout) == (0, "")


def test_a_damaged_checkpoint_is_listed_and_shown_all_the_same(local: Path, peacefs: Peacefs) -> None:
    for name in ("metadata", "offsets/7", "state/0/_metadata/metadata"):
        (local / name).write_bytes(b"\xff")
    listed = json.loads(peacefs("ls", "--json", f"file://{local.parent}").stdout)
    assert (listed["query"], listed["committed"], listed["operators"][0]["name"]) == (None, 7, None)
    assert "unknown: metadata is missing or damaged" in peacefs("show", f"file://{local}").stdout
