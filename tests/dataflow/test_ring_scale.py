"""Rings of many nodes in virtual time: the cost of a recovery does not grow with nodes or failures."""

from __future__ import annotations

from benchmarks.papers.ring_scale import run_scale


def test_ring_recovers_in_the_same_time_whatever_its_size_and_the_failures() -> None:
    rows = run_scale([(12, 1), (12, 4), (80, 1), (80, 6)])
    assert not any(row.lost for row in rows)
    times = [row.recovery_s for row in rows]
    assert max(times) < 1.5
    assert max(times) < 2 * min(times)
    # The node that takes over tells all, and they tell their neighbours, in proportion to the nodes. Copies do not
    # grow.
    assert rows[2].news_per_failure < 8 * 80
    assert all(row.copies_per_failure <= 3 for row in rows)
