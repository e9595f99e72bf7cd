"""Footprints of windows: the commit from which each open window would be loaded. Closed windows are forgotten."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from simulation.seeds import seeds

from peacefs.dataflow.window_checkpoints.control_tuples import BUCKET
from peacefs.dataflow.window_checkpoints.footprints import Footprints

Window = tuple[int, int]


def windows(of: list[Window]) -> pa.Table:
    buckets, keys = zip(*of, strict=True) if of else ((), ())
    return pa.table({BUCKET: pa.array(buckets, pa.int64()), "key": pa.array(keys, pa.int64())})


def windows_in(table: pa.Table) -> list[Window]:
    return list(zip(table.column(BUCKET).to_pylist(), table.column("key").to_pylist(), strict=True))


@pytest.mark.parametrize("seed", seeds(4))
def test_footprints_are_those_of_a_dictionary(seed: int) -> None:
    """Windows open, are checked and close at random, one by one or a pane at a time."""
    chance = random.Random(seed)
    footprints, expected = Footprints(), dict[Window, int]()
    first_pane = 0
    for commit in range(1, 300):
        opened = [(chance.randrange(first_pane, first_pane + 3), 100 * commit + at) for at in range(30)]
        footprints.put(windows(opened), commit)
        expected |= dict.fromkeys(opened, commit)
        for pane in range(first_pane, first_pane + 3):
            here = [window for window in expected if window[0] == pane]
            closed = chance.sample(here, len(here) // 3)
            footprints.remove(pane, np.array([expected.pop(window) for window in closed], np.int64))
        if chance.random() < 0.1:
            first_pane += 1
            footprints.drop_before(first_pane)
            expected = {window: each for window, each in expected.items() if window[0] >= first_pane}
        assert footprints.open_windows == len(expected)
        assert footprints.oldest == min(expected.values(), default=None)
        # A commit checks the oldest windows, and skips those that have closed since.
        while chance.random() < 0.6 and (taken := footprints.take_oldest(chance.choice([3, 1000]))) is not None:
            oldest, ids = taken
            still = windows([window for window in windows_in(ids) if expected.get(window) == oldest])
            if oldest == commit or not still.num_rows or chance.random() < 0.2:
                if still.num_rows:
                    footprints.put_back(oldest, still)
                continue
            assert oldest == min(expected.values())
            footprints.check(still, oldest, commit)
            expected |= dict.fromkeys(windows_in(still), commit)
    footprints.clear()
    assert (footprints.open_windows, footprints.oldest) == (0, None)
