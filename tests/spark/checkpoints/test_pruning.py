"""Pruning removes what no retained batch needs; every retained batch stays as good as before."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st
from support import checkpoints as made
from support.checkpoints import ROOT, MemoryTree

from peacefs.protocol.errors import BadRequest
from peacefs.spark_connector.checkpoints.catalogue import read_layout
from peacefs.spark_connector.checkpoints.inspection import Inspection
from peacefs.spark_connector.checkpoints.pruning import Pruning, Retention, plan_pruning
from peacefs.spark_connector.checkpoints.verification import verify

Peacefs = Callable[..., Result]
NOW_MS = 10_000_000


def plan(tree: MemoryTree, *, batches: int | None = None, size: int | None = None) -> Pruning:
    retention = Retention(batches, None, size, NOW_MS, 3_600_000)
    return plan_pruning(Inspection(tree, read_layout(tree, ROOT)), retention)


def is_good(tree: MemoryTree, batch: int) -> bool:
    return verify(Inspection(tree, read_layout(tree, ROOT)), batch).last_good == batch


@given(
    batches=st.integers(1, 12),
    kept=st.integers(1, 12),
    snapshot_every=st.integers(1, 5),
    state_format=st.sampled_from([1, 2]),
)
def test_every_retained_batch_is_good_afterwards(
    batches: int, kept: int, snapshot_every: int, state_format: int
) -> None:
    tree = made.checkpoint(batches=batches, state_format=state_format, snapshot_every=snapshot_every)
    pruning = plan(tree, batches=kept)
    assert pruning.oldest == max(0, batches - kept)
    for entry in pruning.entries:
        del tree.files[entry.path]
    for batch in range(pruning.oldest, batches):
        assert is_good(tree, batch)
    assert plan(tree, batches=kept).entries == [], "nothing is left to prune"


def test_orphans_are_what_no_batch_can_reach() -> None:
    tree = made.checkpoint(state_format=2)
    other = "00000000-0000-4000-8000-000000000000"
    lone = [
        f"state/0/0/8_{other}.changelog",
        "state/0/0/SSTs/000099-lone.sst",
        f"state/0/0/.8.changelog.{other}.TID3.tmp",
        "state/0/0/1_gone.changelog.crc",
    ]
    ahead = f"state/0/0/9_{other}.changelog"
    for path in (*lone, ahead):
        tree.files[f"{ROOT}/{path}"] = b"x"
    pruning = plan(tree, batches=100)
    assert pruning.outdated == []
    assert sorted(entry.path for entry in pruning.orphans) == sorted(f"{ROOT}/{path}" for path in lone)


def test_a_bound_on_bytes_keeps_the_latest_batch_whatever_it_takes() -> None:
    tree = made.checkpoint()
    assert plan(tree, size=0).oldest == 7
    assert plan(tree, size=1 << 30).oldest == 0
    assert 0 < plan(tree, size=14_000).oldest < 7


def test_nothing_is_pruned_by_a_batch_that_is_not_good() -> None:
    tree = made.checkpoint()
    tree.files[f"{ROOT}/state/0/1/8.changelog"] = b""
    with pytest.raises(BadRequest, match="is damaged: verify says how"):
        plan(tree, batches=2)


def test_the_command_says_what_may_go_and_deletes_it_when_told(local: Path, peacefs: Peacefs) -> None:
    place = f"file://{local}"
    assert "--keep-batches" in peacefs("prune", place).stderr
    said = peacefs("prune", place, "--keep-batches=2")
    assert said.exit_code == 0 and "may go" in said.stdout and (local / "commits/0").exists()
    assert "alive" in peacefs("prune", place, "--keep-batches=2", "--delete").stderr
    began = time.time()
    done = peacefs("prune", place, "--keep-batches=2", "--keep-hours=1", "--delete", "--idle=0")
    assert done.exit_code == 0 and time.time() - began < 60
    assert sorted(path.name for path in (local / "commits").iterdir()) == ["6", "7"]
    assert sorted(path.name for path in (local / "offsets").iterdir()) == ["5", "6", "7"]
    assert peacefs("verify", place, "--batch=6").exit_code == 0
