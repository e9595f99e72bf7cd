"""The checkpoint that a file belongs to, and the estimate of its remaining bytes."""

from __future__ import annotations

import pytest

from peacefs.coordinator.namespace.checkpoint_root import checkpoint_root
from peacefs.coordinator.scheduling.checkpoint_estimates import (
    CheckpointEstimates,
    CheckpointSource,
    checkpoint_pause_s,
    checkpoint_roots_remembered_max,
)


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("/jobs/q1/offsets/17", "/jobs/q1"),
        ("/jobs/q1/offsets/.17.6b1e.tmp", "/jobs/q1"),
        ("/jobs/q1/commits/17", "/jobs/q1"),
        ("/jobs/q1/metadata", "/jobs/q1"),
        ("/jobs/q1/.metadata.6b1e.tmp", "/jobs/q1"),
        ("/jobs/q1/sources/0/3", "/jobs/q1"),
        ("/jobs/q1/state/0/11/5.delta", "/jobs/q1"),
        ("/jobs/q1/state/1/0/left-keyToNumValues/9.zip", "/jobs/q1"),
        ("/state/0/0/1.delta", "/"),
        ("/plain/part-0000.parquet", "/plain"),
        ("/plain/state/of/affairs.txt", "/plain/state/of"),
        ("/sources/code/main.py", "/sources/code"),
        ("/file", "/"),
    ],
)
def test_the_root_is_told_by_the_path_alone(path: str, root: str) -> None:
    assert checkpoint_root(path) == root


def test_estimate_is_what_the_last_checkpoint_had_and_this_one_has_not_yet() -> None:
    estimates, source = CheckpointEstimates(), CheckpointSource("host", "/q")
    estimates.granted(source, 64, 0.0)
    estimates.ended(source, 64, 40, 1.0)
    assert estimates.under_way(source, 1.0 + checkpoint_pause_s).to_come_bytes == 0, "the first, still"
    later = 10.0 + 3 * checkpoint_pause_s
    assert estimates.under_way(source, later).to_come_bytes == 40
    estimates.granted(source, 30, later)
    assert estimates.under_way(source, later).to_come_bytes == 10
    assert estimates.under_way(source, later).began_s == later


def test_sources_that_were_quiet_longest_are_forgotten_first() -> None:
    estimates = CheckpointEstimates()
    for number in range(checkpoint_roots_remembered_max + 1):
        estimates.granted(CheckpointSource("host", f"/{number}"), 5, 0.0)
    late = 2 * checkpoint_pause_s
    assert estimates.under_way(CheckpointSource("host", "/1"), late).last_bytes == 5
    assert estimates.under_way(CheckpointSource("host", "/0"), late).last_bytes == 0
