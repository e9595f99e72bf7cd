"""`peacefs checkpoint` on a cluster and on a local directory."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from support import checkpoints as made

from peacefs.client.control.addresses import split_uri
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import RunSuperseded
from peacefs.spark_connector.checkpoints.tree import LocalTree
from peacefs.spark_connector.runs import begin_run

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
    assert "damaged: commits/7: empty" in stopped.stdout
    assert "`peacefs checkpoint repair` removes commits/7: batch 7 is repeated" in stopped.stdout
    assert "or `peacefs checkpoint rollback --to-batch 6`, in a cluster:" in stopped.stdout
    (local / "metadata").unlink()
    hopeless = peacefs("verify", f"file://{local}")
    assert hopeless.exit_code == 5 and "no batch is good" in hopeless.stdout


def test_newer_sparks_checkpoint_is_not_judged_and_absent_commits_are_called_that(
    local: Path, peacefs: Peacefs
) -> None:
    (local / "commits/7").write_bytes(b"v9\n{}")
    newer = peacefs("verify", f"file://{local}")
    assert newer.exit_code == 4 and "too new: commits/7: version 9" in newer.stdout
    assert "batch 7 cannot be judged: a newer Spark wrote it" in newer.stdout
    assert "the last good one is 6" in newer.stdout
    assert peacefs("repair", f"file://{local}", "--idle=0").exit_code == 1, "a newer Spark may know better"
    shutil.rmtree(local / "commits")
    gone = peacefs("verify", f"file://{local}")
    assert gone.exit_code == 3 and "no batch is said to be done; batch 7 is repeated" in gone.stdout
    assert all(f"missing: commits/{batch}" in gone.stdout for batch in range(7)), "each is named"
    (local / "offsets/7").write_bytes(b"")
    lost = peacefs("verify", f"file://{local}")
    assert lost.exit_code == 5 and "no batch is said to be done, and a query cannot start" in lost.stdout
    assert "None" not in gone.stdout + lost.stdout


def test_repair_removes_what_verify_names_and_keeps_it(local: Path, peacefs: Peacefs) -> None:
    whole = (local / "commits/7").read_bytes()
    (local / "commits/7").write_bytes(whole[:5])
    assert "was written to in the last" in peacefs("repair", f"file://{local}").stderr, "a query may be running"
    done = peacefs("repair", f"file://{local}", "--idle=0")
    assert done.exit_code == 0 and "removed: commits/7" in done.stdout, done.stderr
    assert "batch 7 is repeated with the rows that it had; a query goes on with batch 7" in done.stdout
    (kept,) = local.parent.glob(f"{local.name}.before-repair.*")
    assert [path.read_bytes() for path in kept.rglob("*") if path.is_file()] == [whole[:5]]
    after = peacefs("verify", f"file://{local}")
    assert after.exit_code == 0 and "batch 6 is good, and batch 7 is repeated" in after.stdout
    nothing = peacefs("repair", f"file://{local}", "--idle=0")
    assert nothing.exit_code == 1 and len(nothing.stderr.splitlines()) == 1


def test_repair_that_is_killed_loses_nothing_and_can_be_given_again(
    local: Path, peacefs: Peacefs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_arguments: object) -> None:
        raise KeyboardInterrupt

    whole = (local / "commits/7").read_bytes()
    (local / "commits/7").write_bytes(whole[:5])
    with monkeypatch.context() as patched:
        patched.setattr(LocalTree, "remove", killed)
        assert peacefs("repair", f"file://{local}", "--idle=0").exit_code == 130
    assert (local / "commits/7").read_bytes() == whole[:5]
    assert peacefs("repair", f"file://{local}", "--idle=0").exit_code == 0
    kept = [path.read_bytes() for path in local.parent.glob(f"{local.name}.before-repair.*/commits/7")]
    assert kept == [whole[:5]] * 2


def test_repair_plans_a_batch_anew_only_when_it_is_told_that_the_sink_does_not_mind(
    local: Path, peacefs: Peacefs
) -> None:
    (local / "commits/7").unlink()
    (local / "offsets/7").write_bytes(b"")
    refused = peacefs("repair", f"file://{local}", "--idle=0")
    assert refused.exit_code == 1 and len(refused.stderr.splitlines()) == 1
    assert "batch 7 would be planned anew" in refused.stderr and "Delta Lake's txnVersion" in refused.stderr
    done = json.loads(peacefs("repair", f"file://{local}", "--idle=0", "--batches-may-differ", "--json").stdout)
    assert done["repair"]["remove"] == [
        "sources/0/7",
        "state/0/0/8.changelog",
        "state/0/1/8.changelog",
        "offsets/7",
    ]
    assert (done["repair"]["plans_anew"], done["repair"]["goes_on_with"]) == (7, 7)
    assert peacefs("verify", f"file://{local}").exit_code == 0


@pytest.mark.cluster
def test_repair_on_a_cluster_is_a_run_of_its_own(cluster: LocalCluster, peacefs: Peacefs) -> None:
    root, address = "/repaired/orders", f"--coordinator={cluster.http_address}"
    with PeaceFileSystem(cluster.http_address) as files:
        for path, data in made.checkpoint(root=root).files.items():
            files.write(path, data)
        files.write(f"{root}/state/0/0/_metadata/schema", b"", overwrite=True)
        zombie = begin_run(f"{cluster.webhdfs_uri}{root}", host="elsewhere", pid=7)
        assert "process 7 on elsewhere" in peacefs("repair", root, address).stderr
        zombie.end()
        done = peacefs("repair", root, "--idle=0", address)
        assert done.exit_code == 0 and "removed: state/0/0/_metadata/schema" in done.stdout, done.stderr
        with pytest.raises(RunSuperseded):
            files.write(split_uri(zombie.location)[1] + "/offsets/8", b"v1")
        assert peacefs("verify", root, address).exit_code == 3, "Spark writes the schema anew"


def test_notes_change_no_exit_status(local: Path, peacefs: Peacefs) -> None:
    shutil.rmtree(local / "state")
    noted = peacefs("verify", f"file://{local}")
    assert noted.exit_code == 0 and "note: state: there is none" in noted.stdout


def test_directory_that_is_no_checkpoint_is_refused_in_one_line(tmp_path: Path, peacefs: Peacefs) -> None:
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
