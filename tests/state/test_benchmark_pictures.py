"""Pictures of benchmark results: a line for each way, on the paper's scales."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import state_pictures
from benchmarks.papers.state_latency import RATE_PER_S, Run
from benchmarks.papers.state_operators import WAYS


def test_picture_of_latencies_has_a_line_for_each_way() -> None:
    pytest.importorskip("matplotlib", reason="the extra `picture` is not installed")
    latencies = np.ones(2 * RATE_PER_S)
    latencies[RATE_PER_S] = 300.0
    lines = {way: Run(way, 1, latencies, [0.3]).line() for way in WAYS}
    figure = state_pictures.latency_figure("128 MB", lines)
    (axis,) = figure.axes
    assert [line.get_label() for line in axis.get_lines()] == list(WAYS)
    assert axis.get_yscale() == "log"
    seconds, worst = axis.get_lines()[0].get_data()
    assert max(worst) == 300.0 and seconds[list(worst).index(300.0)] == 0.0, "the checkpoint begins at 0"


def test_picture_of_sizes_has_a_line_for_each_way() -> None:
    pytest.importorskip("matplotlib", reason="the extra `picture` is not installed")
    lines = {"pages": [(64.0, 0.3), (128.0, 0.5)], "Arrow IPC": [(64.0, 30.0), (128.0, 60.0)]}
    (axis,) = state_pictures.size_figure("preparing", "ms", lines).axes
    assert {line.get_label(): list(line.get_xdata()) for line in axis.get_lines()} == {
        "pages": [64.0, 128.0],
        "Arrow IPC": [64.0, 128.0],
    }
    assert axis.get_ylabel() == "ms"


def test_picture_is_written_beside_the_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="the extra `picture` is not installed")
    monkeypatch.setattr(state_pictures, "RESULTS", tmp_path / "results")
    written = state_pictures.draw_sizes("sguard_figure6", "preparing", "ms", {"pages": [(64.0, 0.3)]})
    assert written == tmp_path / "results" / "sguard_figure6.png"
    assert written.read_bytes().startswith(b"\x89PNG")


def test_row_of_a_run_stands_beside_the_papers() -> None:
    run = Run("pages", 4, np.array([1.0, 2.0, 30.0]), [0.2, 0.4])
    row = run.row()
    assert (row["mean ms"], row["worst ms"], row["pause ms"], row["paper, ms"]) == (11.0, 30.0, 0.4, "22.2(1.91)")
