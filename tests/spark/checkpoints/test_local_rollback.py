"""A rollback in a local directory: wherever it is killed, the root is either unchanged or rolled back."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from peacefs.protocol.errors import BadRequest
from peacefs.runtime import disk_files
from peacefs.spark_connector.checkpoints import local_rollback
from peacefs.spark_connector.checkpoints.catalogue import read_layout
from peacefs.spark_connector.checkpoints.findings import Verdict
from peacefs.spark_connector.checkpoints.inspection import Inspection
from peacefs.spark_connector.checkpoints.local_rollback import roll_back_locally
from peacefs.spark_connector.checkpoints.rollback import RollbackRequest
from peacefs.spark_connector.checkpoints.tree import LocalTree
from peacefs.spark_connector.checkpoints.verification import verify

Peacefs = Callable[..., Result]
_KILLED = 9


def judge(root: Path) -> Verdict:
    tree = LocalTree()
    return verify(Inspection(tree, read_layout(tree, str(root))))


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def request(root: Path, batch: int) -> RollbackRequest:
    return RollbackRequest(str(root), batch, None, 0.0, may_differ=True)


def test_rollback_on_this_machine_keeps_what_was_there_and_its_times(local: Path, peacefs: Peacefs) -> None:
    before = contents(local)
    os.utime(local / "commits/5", (1000, 1000))
    done = peacefs(
        *("rollback", f"file://{local}", "--to-batch=5", "--no-file-sink", "--idle=0", "--json"),
        "--batches-may-differ",
    )
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    verdict = judge(local)
    assert (verdict.committed, verdict.planned, verdict.restarts, verdict.goes_on_with) == (5, 6, True, 6)
    assert (said["before"], said["batch"], said["repeats"], said["may_differ"]) == (7, 5, 6, [7])
    (kept,) = said["kept"]
    assert contents(Path(kept)) == before
    assert (local / "commits/5").stat().st_mtime == 1000
    assert {path.name for path in local.parent.iterdir()} == {local.name, Path(kept).name}


def test_rollback_on_this_machine_is_refused_without_leave_for_a_live_query_and_with_a_file_sink(
    local: Path, peacefs: Peacefs
) -> None:
    before = contents(local)
    root = f"file://{local}"
    for arguments, reason in (
        (["--to-batch=5", "--no-file-sink"], "was written to in the last 30 s"),
        (["--to-batch=5", "--no-file-sink", "--idle=0"], "batch 7 may come again"),
        (["--to-batch=9", "--no-file-sink", "--idle=0"], "batch 9 is not there"),
        (["--to-batch=7", "--no-file-sink", "--idle=0"], "is the latest already"),
        (["--to-batch=5", "--with-sink=file:///out", "--idle=0"], "cannot change in one step"),
    ):
        refused = peacefs("rollback", root, *arguments)
        assert (refused.exit_code, reason in refused.stderr) == (1, True), refused.output
    assert contents(local) == before and [path.name for path in local.parent.iterdir()] == [local.name]


def test_rollback_leaves_all_as_it_was_where_names_cannot_be_exchanged(
    local: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(local)
    unable = OSError(22, "Invalid argument")

    def exchange(first: str, second: str) -> None:
        raise unable

    monkeypatch.setattr(local_rollback, "exchange_names", exchange)
    with pytest.raises(BadRequest, match="cannot exchange two names"):
        roll_back_locally(request(local, 6))
    assert contents(local) == before and [path.name for path in local.parent.iterdir()] == [local.name]


def killed_at(step: int | None, root: Path) -> int:
    """Roll back in a process that dies at the given system call. Return the number of system calls."""
    told = root.with_name("steps")
    child = os.fork()
    if not child:
        steps = itertools.count()

        def die(*_event: object) -> None:
            if next(steps) == step:
                os._exit(_KILLED)

        try:
            sys.addaudithook(die)
            roll_back_locally(request(root, 5))
            told.write_text(str(next(steps)))
        except BaseException:
            os._exit(1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == (0 if step is None else _KILLED)
    if step is not None:
        return step
    steps_taken = int(told.read_text())
    told.unlink()
    return steps_taken


@pytest.mark.evidence("checkpoint-command-killed")
def test_rollback_that_is_killed_leaves_the_root_as_it_was_or_rolled_back(local: Path, tmp_path: Path) -> None:
    before = contents(local)
    root = tmp_path / "killed" / "orders"
    shutil.copytree(local, root)
    steps = killed_at(None, root)
    seen = set[int | None]()
    # The exchange is among the last calls.
    for step in sorted({*range(0, steps, steps // 10), *range(steps - 15, steps - 2)}):
        shutil.rmtree(root.parent)
        shutil.copytree(local, root)
        killed_at(step, root)
        verdict = judge(root)
        assert verdict.restarts and not verdict.findings
        seen.add(verdict.committed)
        assert before in [contents(path) for path in root.parent.iterdir()], "it is whole somewhere"
        if verdict.committed == 7:
            assert contents(root) == before
            roll_back_locally(request(root, 5))
        assert judge(root).committed == 5
    assert seen == {7, 5}


def test_exchange_of_names_is_of_both_or_none(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/file").write_text("of a")
    (tmp_path / "b").mkdir()
    disk_files.exchange_names(str(tmp_path / "a"), str(tmp_path / "b"))
    assert (tmp_path / "b/file").read_text() == "of a" and not list((tmp_path / "a").iterdir())
    with pytest.raises(FileNotFoundError):
        disk_files.exchange_names(str(tmp_path / "a"), str(tmp_path / "nothing"))
    assert (tmp_path / "a").is_dir()
