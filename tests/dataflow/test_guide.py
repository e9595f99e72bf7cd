"""The query of docs/dataflow.md runs as it is written there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.pages import ROOT, Page


@pytest.mark.cluster
def test_guide_finds_the_address_that_attacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve failed logins of one address within a minute, and one of another."""
    (written,) = Page(ROOT / "docs" / "dataflow.md").blocks("python")
    attacks: list[dict[str, Any]] = []
    names: dict[str, Any] = {"print": lambda batch: attacks.extend(batch.to_pylist())}
    monkeypatch.chdir(tmp_path)
    exec(compile(written, "docs/dataflow.md", "exec"), names)
    assert {attack["address"] for attack in attacks} == {"10.0.0.1"}
    assert max(attack["count"] for attack in attacks) == 12
