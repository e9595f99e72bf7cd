"""Memory for clones is populated in advance, so that no operator waits for the system."""

from __future__ import annotations

import resource

import numpy as np
import pyarrow as pa
import pytest
from support.waiting import wait_until

from peacefs.state import PageManager, UnorderedMap
from peacefs.state.checkpoints.reserve import Reserve

_SCHEMA = pa.schema([("key", pa.int64()), ("count", pa.int64())])
_KEYS = np.arange(500_000)


def filled(pages: PageManager) -> UnorderedMap:
    counts = UnorderedMap.create(pages.page_set("counts"), _SCHEMA, "key")
    counts.add_at(_KEYS, 1)
    return counts


def faults_of_cloning_all(pages: PageManager, counts: UnorderedMap) -> int:
    """Return how often this thread waited for memory while cloning every page."""
    pages.prepare(1)
    before, clones = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt, pages.clones
    counts.add_at(_KEYS, 1)
    assert pages.clones - clones > 100
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before


def test_reserve_has_memory_for_a_clone_of_every_page() -> None:
    bare = PageManager(memory_bytes_max=1 << 30)
    without = faults_of_cloning_all(bare, filled(bare))
    pages = PageManager(memory_bytes_max=1 << 30)
    if not pages.frames.populate(0, 1):
        pytest.skip("this kernel gives no memory ahead")
    reserve = Reserve(pages.frames)
    counts = filled(pages)
    # The reserve is called after some pages, or an eighth more, and not for each page.
    wait_until(lambda: reserve.frames > 1.7 * pages.frames.used, "a reserve")
    with_reserve = faults_of_cloning_all(pages, counts)
    reserve.close()
    assert with_reserve < 0.6 * without, (with_reserve, without)


def test_reserve_stays_within_the_bound_of_the_memory() -> None:
    pages = PageManager(memory_bytes_max=20 << 20)
    reserve = Reserve(pages.frames)
    filled_pages = UnorderedMap.create(pages.page_set("counts"), _SCHEMA, "key")
    filled_pages.add_at(np.arange(600_000), 1)
    assert pages.frames.used > pages.frames.count / 2
    reserve.close()
    assert reserve.frames <= pages.frames.count


def test_reserve_that_is_closed_asks_for_nothing() -> None:
    pages = PageManager(memory_bytes_max=1 << 30)
    reserve = Reserve(pages.frames)
    reserve.close()
    before = reserve.frames
    filled(pages)
    assert reserve.frames == before
