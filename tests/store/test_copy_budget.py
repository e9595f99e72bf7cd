"""All copies together get a limited number of bytes per second."""

from __future__ import annotations

import pytest

from peacefs.datanode.rate_limiter import CopyBudget


# Written by hand for 10 bytes per second and a burst of 20: time of request, size, earliest time to send.
@pytest.mark.parametrize(
    "story",
    [
        [(0.0, 10, 0.0), (0.0, 10, 0.0), (0.0, 10, 1.0), (0.0, 10, 2.0)],
        [(0.0, 20, 0.0), (1.0, 10, 1.0), (1.0, 10, 2.0), (5.0, 20, 5.0), (5.0, 1, 5.1)],
        [(0.0, 50, 3.0), (0.0, 10, 4.0), (100.0, 20, 100.0), (100.0, 20, 102.0)],
        [(7.0, 0, 7.0), (7.0, 20, 7.0), (7.0, 0, 7.0), (7.0, 5, 7.5)],
    ],
)
def test_copy_budget_saved_may_go_at_once_and_the_rest_in_turn(story: list[tuple[float, int, float]]) -> None:
    budget = CopyBudget(10.0, burst_bytes=20)
    for now_s, size, send_at_s in story:
        assert budget.reserve(now_s, size) == pytest.approx(send_at_s)


def test_over_any_time_no_more_goes_than_the_rate_and_one_burst() -> None:
    budget = CopyBudget(1000.0, burst_bytes=500)
    sent = [(budget.reserve(n * 0.013, 37), 37) for n in range(500)]
    for first in range(0, 500, 50):
        for last in range(first, 500, 50):
            took_s = sent[last][0] - sent[first][0]
            assert sum(size for _at, size in sent[first : last + 1]) <= 500 + 1000 * took_s + 37
