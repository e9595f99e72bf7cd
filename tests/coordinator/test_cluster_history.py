"""The last day of the cluster: what a sample is of its minute, by arithmetic of the test, in bounded memory."""

from __future__ import annotations

import tracemalloc
from fractions import Fraction

from peacefs.coordinator.api.views.history import HistoryRecorder, Totals, history_samples_max


def test_sample_is_the_difference_of_two_minutes() -> None:
    recorder = HistoryRecorder()
    recorder.record(100.0, 1_000, Totals(5_000, 10, 4, 0.5, 70, 100))
    assert recorder.view().samples == []
    recorder.record(160.0, 61_000, Totals(5_000 + 60 * 2_048, 10 + 90, 4 + 3, 0.5 + 0.006, 80, 100))
    recorder.record(220.0, 121_000, Totals(5_000 + 60 * 2_048, 100, 7, 0.506, 60, 100))
    busy, idle = recorder.view().samples
    assert (busy.at_ms, busy.bytes_per_s, busy.changes_per_s) == (61_000, 2_048, float(Fraction(90, 60)))
    assert busy.commit_ms == float(Fraction(6, 3)) and (busy.used_bytes, busy.capacity_bytes) == (80, 100)
    # Nothing was committed: there is no duration, which is not a duration of 0.
    assert (idle.bytes_per_s, idle.changes_per_s, idle.commit_ms) == (0, 0, None)


def test_history_is_of_the_last_day_and_takes_a_bounded_memory() -> None:
    recorder = HistoryRecorder()
    tracemalloc.start()
    for minute in range(3 * 24 * 60):
        recorder.record(60.0 * minute, 60_000 * minute, Totals(minute, minute, minute, float(minute), minute, 9))
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    samples = recorder.view().samples
    assert len(samples) == history_samples_max == 24 * 60
    assert samples[-1].at_ms - samples[0].at_ms == (24 * 60 - 1) * 60_000
    assert used < 1_000_000


def test_clock_that_stands_still_divides_by_nothing() -> None:
    recorder = HistoryRecorder()
    for _ in range(2):
        recorder.record(1.0, 1, Totals(0, 0, 0, 0.0, 0, 0))
    assert recorder.view().samples == []
