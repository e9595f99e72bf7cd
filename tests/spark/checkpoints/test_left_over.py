"""Remains that cannot be deleted are reported in one line, and the first fault is raised."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

import pytest
from support.checkpoints import ROOT, MemoryTree, checkpoint

from peacefs.client.checkpoint.attempt import CheckpointAttempt, CheckpointTask
from peacefs.client.checkpoint.pages import Pages
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import AccessDenied, BadRequest, PeacefsError, PeerUnreachable
from peacefs.spark_connector.checkpoints import left_over
from peacefs.spark_connector.checkpoints.catalogue import find_roots
from peacefs.spark_connector.checkpoints.left_over import checkpoint_left_over_age_s, staged, staging_name
from peacefs.spark_connector.checkpoints.relocation import fork
from peacefs.spark_connector.checkpoints.tree import Amount, LocalTree, PeaceTree


class Failing:
    """A file system on which nothing can be made or deleted."""

    address, user = "127.0.0.1:1", "ann"

    def exists(self, path: str) -> bool:
        return False

    def open_for_writing(self, path: str, **_options: object) -> object:
        raise AccessDenied("the first fault")

    def write(self, path: str, data: bytes) -> None:
        raise AccessDenied("the first fault")

    def delete(self, path: str, *, recursive: bool = False) -> bool:
        raise PeerUnreachable("nobody is there to delete")


def one_line(caplog: pytest.LogCaptureFixture) -> str:
    (record,) = caplog.records
    assert record.levelname == "WARNING" and record.exc_info is None
    return record.getMessage()


def test_a_checkpoint_attempt_says_what_it_leaves(caplog: pytest.LogCaptureFixture) -> None:
    files = cast(PeaceFileSystem, Failing())
    task = CheckpointTask("/root", "unit", 7, Pages([b"page"]), 1, 1 << 20, None)
    with pytest.raises(AccessDenied, match="the first fault"):
        CheckpointAttempt(files, task, None).run()
    said = one_line(caplog)
    assert said.startswith("/root/.") and said.endswith("can be deleted: nobody is there to delete")


class Stubborn(LocalTree):
    """Copies fail half-way, and partial copies cannot be removed."""

    def copy(self, source: str, target: str) -> Amount:
        raise BadRequest("the first fault")

    def remove(self, path: str) -> None:
        raise PeacefsError("nothing can be removed here")


def test_a_fork_says_what_it_leaves(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    for name in ("offsets", "commits"):
        (tmp_path / "root" / name).mkdir(parents=True)
    (tmp_path / "root" / "metadata").write_text('{"id":"x"}')
    with pytest.raises(BadRequest, match="the first fault"):
        fork(Stubborn(), str(tmp_path / "root"), str(tmp_path / "fork"))
    said = one_line(caplog)
    assert said.startswith(f"{tmp_path}/.fork.") and said.endswith("can be deleted: nothing can be removed here")


def test_remains_of_a_killed_export_or_import_are_listed_as_no_checkpoint() -> None:
    left = "/checkpoints/.orders.90faf85c-0251-4fb6-bbd4-522bf3be8995.tmp"
    files = checkpoint().files
    staged = {path.replace(ROOT, left): data for path, data in files.items()}
    tree = MemoryTree(files | staged)
    assert list(find_roots(tree, "/checkpoints")) == [ROOT]
    assert list(find_roots(tree, left)) == [left]


@pytest.mark.evidence("rollback-past-sink")
def test_remains_of_a_command_killed_a_day_ago_go_with_the_next_one(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    (root / "offsets").mkdir(parents=True)
    (root / "offsets" / "0").write_text("v1")
    old_s = root.stat().st_mtime - checkpoint_left_over_age_s - 60
    for path in (root / "offsets" / "0", root / "offsets", root):
        os.utime(path, (old_s, old_s))
    dead, alive, another = (Path(staging_name(str(path))) for path in (root, root, tmp_path / "root2"))
    rolled_back = Path(staging_name(f"{root}.rollback-to-3"))
    not_staged = tmp_path / ".root.tmp"
    tree = LocalTree()
    for path in (dead, alive, another, rolled_back, not_staged):
        tree.copy(str(root), str(path))
    # An existing copy of the same age may still belong to a running command.
    with staged(tree, str(root)):
        assert dead.exists()
    for path in (dead, another, rolled_back, not_staged):
        for each in (path / "offsets" / "0", path / "offsets", path):
            os.utime(each, (old_s, old_s))
    with staged(tree, str(root)):
        left = {path for path in (root, dead, alive, another, rolled_back, not_staged) if path.exists()}
    assert left == {root, alive, another, rolled_back, not_staged}
    assert one_line(caplog) == f"deleted {dead}, left behind by a killed command"


@pytest.mark.cluster
@pytest.mark.evidence("rollback-past-sink")
def test_remains_of_a_killed_command_in_a_cluster_go_as_well(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PeaceFileSystem(cluster.http_address) as files:
        tree = PeaceTree(files)
        files.write("/left-over/root/metadata", b"{}")
        left = staging_name("/left-over/root")
        tree.copy("/left-over/root", left)
        with staged(tree, "/left-over/root"):
            assert files.exists(left), "it may be at work"
        monkeypatch.setattr(left_over, "checkpoint_left_over_age_s", -60.0)
        with staged(tree, "/left-over/root"):
            assert not files.exists(left)
        assert [entry.name for entry in files.list("/left-over")] == ["root"]
