"""The reactor's thread operates on a slow disk only if no other request waits meanwhile."""

from __future__ import annotations

from random import Random

import pytest

from peacefs.runtime.disk_turns import DiskTurns

QUICK_S, SLOW_S, VERY_SLOW_S = 0.0002, 0.004, 0.05


def run(turns: DiskTurns, batches: list[int], disk_s: float) -> list[bool]:
    """Serve batches of requests, each with an append and a sync. Return which ones a worker serves."""
    by_worker = []
    for requests in batches:
        turns.arrived(requests)
        by_worker.append(turns.belongs_to_worker())
        turns.took(disk_s)
        turns.syncs()
        turns.took(disk_s)
    return by_worker


@pytest.mark.parametrize(
    ("requests", "disk_s", "is_worker"),
    [
        (1, QUICK_S, False),
        (16, QUICK_S, False),
        (1, SLOW_S, False),
        (2, SLOW_S, True),
        (16, SLOW_S, True),
        (1, VERY_SLOW_S, True),
        (16, VERY_SLOW_S, True),
    ],
)
def test_a_worker_serves_a_disk_that_would_keep_others_waiting(requests, disk_s, is_worker):
    served = run(DiskTurns(), [requests] * 100, disk_s)
    assert set(served[50:]) == {is_worker}


@pytest.mark.parametrize("seed", range(5))
def test_several_writers_that_rarely_come_together_are_not_alone(seed):
    random = Random(seed)
    served = run(DiskTurns(), [random.choice((1, 1, 1, 2)) for _ in range(400)], SLOW_S)
    assert served[50:].count(True) > 0.6 * len(served[50:])


def test_it_changes_with_the_disk_and_with_the_requests():
    turns = DiskTurns()
    for batches, disk_s, is_worker in [
        ([1] * 60, SLOW_S, False),
        ([5] * 60, SLOW_S, True),
        ([1] * 60, SLOW_S, False),
        ([1] * 60, VERY_SLOW_S, True),
        ([5] * 60, QUICK_S, False),
    ]:
        assert run(turns, batches, disk_s)[-1] is is_worker


def test_after_a_disk_that_hung_workers_serve_until_it_is_quick_again():
    turns = DiskTurns()
    turns.hangs(1.0)
    served = run(turns, [1] * 60, QUICK_S)
    assert served[0] and served[1] and not served[-1]
