"""What is learned of writes that come back, against the periods and sizes by which the test makes them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.long_runs import often

from peacefs.peace.recurrences import Forecast, RecurrenceKey, Recurrences
from peacefs.protocol.values.write_classes import WriteClass

KEY = RecurrenceKey("/query", WriteClass.BLOCKING)


def learned(times_s: Sequence[float], size: int = 100) -> list[Forecast | None]:
    """Return the forecast after each write."""
    known, found = Recurrences(), []
    for now_s in times_s:
        known.wrote(now_s, KEY, size, "me")
        found.append(known.forecast(KEY, now_s))
    return found


def batches(rng: Random, starts_s: Sequence[float], period_s: float, tasks: int) -> list[float]:
    """Offsets when a batch begins, the state of some tasks a while later, and the commit."""
    made: list[float] = []
    for start_s in starts_s:
        writes = sorted(start_s + period_s * rng.uniform(0.1, 0.3) for _ in range(tasks))
        made += [start_s, *writes, start_s + period_s * 0.35]
    return made


@settings(max_examples=often(40, 500), deadline=None)
@given(st.floats(1.0, 60.0), st.integers(0, 30), st.floats(0.0, 0.05), st.floats(0.0, 1e6), st.integers(0, 2**32))
def test_period_phase_and_size_of_batches_are_learned(
    period_s: float, tasks: int, drift: float, first_s: float, seed: int
) -> None:
    rng = Random(seed)
    starts_s = [first_s + period_s * (number + drift * rng.random()) for number in range(25)]
    found = learned(batches(rng, starts_s, period_s, tasks))[-1]
    assert found is not None
    assert found.period_s == pytest.approx(period_s, rel=2 * drift + 1e-6)
    assert found.size == 100 * (tasks + 2)
    expected_s = starts_s[-1] + period_s
    off_s = (found.next_s(expected_s - period_s / 2) - expected_s) % period_s
    assert min(off_s, period_s - off_s) <= 3 * drift * period_s + 1e-6


def test_one_missed_occurrence_and_a_late_one_change_nothing() -> None:
    times_s = [*range(0, 100, 10), *range(110, 210, 10), 214, *range(220, 300, 10)]
    assert all(each is not None and each.period_s == 10 for each in learned(times_s)[6:])


@pytest.mark.parametrize(("before_s", "after_s"), [(10, 20), (20, 10), (20, 5), (5, 60)])
def test_a_new_period_is_accepted_after_a_few_occurrences(before_s: int, after_s: int) -> None:
    change_s = 10 * before_s
    times_s = [*range(0, change_s, before_s), *(change_s + after_s * number for number in range(20))]
    found = learned(times_s)
    assert found[9] is not None and found[9].period_s == before_s
    for number in (19, -1):
        each = found[number]
        assert each is None or each.period_s in (before_s, after_s)
    assert found[-1] is not None and found[-1].period_s == after_s


def test_what_comes_by_chance_is_hardly_ever_taken_for_a_recurrence() -> None:
    rng, now_s, times_s = Random(1), 0.0, []
    for _ in range(1000):
        now_s += rng.expovariate(0.1)
        times_s.append(now_s)
    assert sum(each is not None for each in learned(times_s)) < 50


def test_a_recurrence_that_has_stopped_is_forecast_no_more() -> None:
    known = Recurrences()
    for now_s in range(0, 100, 10):
        known.wrote(float(now_s), KEY, 1)
    assert known.forecast(KEY, 100.0) is not None
    assert known.forecast(KEY, 200.0) is None


def test_what_is_remembered_is_bounded_and_the_silent_are_forgotten_first() -> None:
    known = Recurrences(count_max=100)
    for number in range(1000):
        known.wrote(float(number) / 1000, RecurrenceKey(f"/{number}", WriteClass.BULK), 1)
    assert len(known) == 100 and known.writes(RecurrenceKey("/999", WriteClass.BULK))
    known.wrote(5000.0, KEY, 1)
    assert len(known) == 1


def test_ten_thousand_recurrences_cost_less_than_five_percent_of_a_core() -> None:
    """Each writes once in ten seconds, so the last round may take 0.5 s of processor time."""
    known = Recurrences()
    keys = [RecurrenceKey(f"/query-{number}", WriteClass.BLOCKING) for number in range(10_000)]
    for round_s in range(0, 30, 10):
        begun_s = time.process_time()
        for number, key in enumerate(keys):
            known.wrote(round_s + number / 1000, key, 1)
        took_s = time.process_time() - begun_s
    assert took_s < 0.05 * 10
