"""Decisions about datanodes are on disk before the answer is sent."""

from __future__ import annotations

import contextlib
from pathlib import Path

from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.metadata.model import AdminDecision, Mode
from peacefs.coordinator.metadata.sqlite.store import open_store


def test_decisions_are_there_after_a_restart_and_go_with_the_return_to_service(tmp_path: Path) -> None:
    path = tmp_path / "metadata.sqlite"
    with contextlib.closing(open_store(path, owner="ann")) as metadata:
        metadata.begin_epoch()
        run_now(metadata, lambda tx: tx.decide("dn-1", AdminDecision(Mode.DECOMMISSION)))
        run_now(metadata, lambda tx: tx.decide("dn-2", AdminDecision(Mode.DECOMMISSION)))
        run_now(metadata, lambda tx: tx.decide("dn-2", AdminDecision(Mode.MAINTENANCE, until_ms=77)))
        run_now(metadata, lambda tx: tx.decide("dn-3", AdminDecision(Mode.MAINTENANCE, until_ms=88)))
        run_now(metadata, lambda tx: tx.decide("dn-3", AdminDecision(Mode.IN_SERVICE)))
    with contextlib.closing(open_store(path, owner="ann")) as metadata:
        assert metadata.reader().decisions() == {
            "dn-1": AdminDecision(Mode.DECOMMISSION),
            "dn-2": AdminDecision(Mode.MAINTENANCE, until_ms=77),
        }
