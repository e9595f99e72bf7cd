"""Footprints of windows: which commit each open one would be loaded from, and closed ones that are forgotten."""

from __future__ import annotations

import random

import pyarrow as pa

from peacefs.dataflow.unit_state.paged_state import PagedState
from peacefs.dataflow.window_checkpoints.control_tuples import BUCKET
from peacefs.dataflow.window_checkpoints.footprints import COMMIT_OF_WINDOW, Footprints
from peacefs.protocol.limits import cec_entries_tidied_min
from peacefs.state.checkpoints.checkpointer import Checkpointer
from peacefs.state.checkpoints.memory_store import MemoryStore
from peacefs.state.pages.manager import PageManager

_KEYS = pa.schema([("key", pa.int64())])


def windows(keys: list[int]) -> pa.Table:
    return pa.table({BUCKET: pa.array([0] * len(keys), pa.int64()), "key": pa.array(keys, pa.int64())})


def keys_of(table: pa.Table) -> list[int]:
    return sorted(table.column("key").to_pylist())


def test_footprints_are_those_of_a_dictionary() -> None:
    """Windows open, are checked and close at random; closed ones never pile up where they were kept."""
    pages = PageManager(memory_bytes_max=1 << 26)
    commits = PagedState(pages, Checkpointer(pages, MemoryStore(), "unit", keep=None)).groups(
        "footprints", _KEYS, [COMMIT_OF_WINDOW]
    )
    footprints = Footprints(commits)
    chance, expected = random.Random(1), dict[int, int]()
    for commit in range(1, 400):
        opened = chance.sample(range(10 * commit, 10 * commit + 300), 40)
        footprints.put(windows(opened), commit)
        expected |= dict.fromkeys(opened, commit)
        closed = chance.sample(range(10 * commit - 200, 10 * commit + 300), 60)
        assert keys_of(footprints.remove(windows(closed))) == sorted(expected.keys() & closed)
        expected = {key: each for key, each in expected.items() if key not in closed}
        assert footprints.open_windows == len(expected)
        assert footprints.oldest == min(expected.values(), default=None)
        asked = chance.sample(range(10 * commit + 300), 50)
        assert keys_of(footprints.without(0, windows(asked))) == sorted(set(asked) - expected.keys())
        assert commits.size(0) <= 2 * len(expected) + cec_entries_tidied_min + 100
    taken = footprints.take_oldest(10_000)
    assert taken is not None
    oldest, found = taken
    assert keys_of(found) == sorted(key for key, each in expected.items() if each == oldest)
