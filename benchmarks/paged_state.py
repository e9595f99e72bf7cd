"""State in pages, as SGuard 6.1 measures it: aggregates (Table 6), checkpoints (Figure 6), recovery (Figure 9).

All are processor time of one thread, the best of some runs, so that what else the machine does counts less. The
aggregate keeps count, min and max by an 8-byte key, in batches of 65,536. Its peers hold the same in a dict of
lists, one by one, and in one flat table of arrays of a fixed size, by a loop that is compiled as well: pages
without pages.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pyarrow as pa

from peacefs.state import Checkpointer, MemoryStore, PageManager, UnorderedMap

from .report import show

_BATCH = 65_536
_SCHEMA = pa.schema([("key", pa.int64()), ("count", pa.int64()), ("low", pa.int64()), ("high", pa.int64())])
_RECORD_BYTES = 32
_RUNS = 3


def main(*, quick: bool = False) -> None:
    groups = (1000, 100_000) if quick else (1000, 30_000, 100_000, 3_000_000, 5_000_000)
    show("paged_state_aggregate", "aggregate: ns a tuple", [_aggregate(each, quick=quick) for each in groups])
    sizes = (4, 16) if quick else (16, 64, 128, 256)
    show("paged_state_prepare", "preparing a checkpoint", [_prepare(each) for each in sizes])
    pools = (16,) if quick else (64, 128, 256, 512)
    rows = [_recovery(size, page_bytes) for size in pools for page_bytes in (8192, 65_536)]
    show("paged_state_recovery", "recovery, when all pages were read", rows)


def _best_s(run: Callable[[], object]) -> float:
    found = []
    for _ in range(_RUNS):
        begun = time.thread_time()
        run()
        found.append(time.thread_time() - begun)
    return min(found)


# -- Table 6 ----------------------------------------------------------------------------------------


def _aggregate(groups: int, *, quick: bool) -> dict[str, Any]:
    tuples = 4 * _BATCH if quick else 16 * _BATCH
    rng = np.random.default_rng(groups)
    all_keys = (rng.permutation(groups) + 1) * 7919
    keys = (rng.integers(0, groups, tuples) + 1) * 7919
    times = rng.integers(0, 1 << 40, tuples)
    ns: dict[str, float] = {}
    for page_bytes in (65_536, 8192):
        held = UnorderedMap.create(PageManager(page_bytes=page_bytes).page_set("groups"), _SCHEMA, "key")

        def run(held: UnorderedMap = held, keys: Any = keys, times: Any = times) -> None:
            for begin in range(0, len(keys), _BATCH):
                batch = times[begin : begin + _BATCH]
                held.aggregate(
                    keys[begin : begin + _BATCH],
                    {"count": ("add", 1), "low": ("min", batch), "high": ("max", batch)},
                )

        run(keys=all_keys, times=all_keys)
        ns[f"pages of {page_bytes >> 10} KiB"] = _best_s(run) / tuples * 1e9
    size = 1 << int(np.ceil(np.log2(groups / 0.6)))
    table = np.zeros((size, 4), np.int64)
    _flat(table, all_keys, all_keys)
    ns["flat table"] = _best_s(lambda: _flat(table, keys, times)) / tuples * 1e9
    few = keys[: 2 * _BATCH].tolist()
    by_key = {key: [0, 1 << 62, -(1 << 62)] for key in all_keys.tolist()}
    ns["dict"] = _best_s(lambda: _by_one(by_key, few)) / len(few) * 1e9
    paged = ns["pages of 64 KiB"]
    return {
        "groups": groups,
        "MB": groups * _RECORD_BYTES / 1e6,
        **ns,
        "of flat": paged / ns["flat table"],
        "million tuples/s": 1000 / paged,
    }


@numba.njit(nogil=True, cache=True)  # type: ignore[misc, unused-ignore]
def _flat(table: Any, keys: Any, times: Any) -> None:
    last = table.shape[0] - 1
    for number in range(keys.shape[0]):
        key = keys[number]
        spread = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
        slot = np.int64(spread >> np.uint64(20)) & last
        while table[slot, 0] != key and table[slot, 0] != 0:
            slot = (slot + 1) & last
        table[slot, 0] = key
        table[slot, 1] += 1
        table[slot, 2] = min(table[slot, 2], times[number])
        table[slot, 3] = max(table[slot, 3], times[number])


def _by_one(held: dict[int, list[int]], keys: list[int]) -> None:
    for key in keys:
        group = held[key]
        group[0] += 1
        group[1] = min(group[1], key)
        group[2] = max(group[2], key)


# -- Figure 6 ---------------------------------------------------------------------------------------


def _filled(mebibytes: int, page_bytes: int) -> tuple[PageManager, UnorderedMap]:
    pages = PageManager(page_bytes=page_bytes)
    held = UnorderedMap.create(pages.page_set("groups"), _SCHEMA, "key")
    begin = 0
    while pages.memory_bytes < mebibytes << 20:
        held.aggregate(np.arange(begin, begin + 20_000), {"count": ("add", 1)})
        begin += 20_000
    return pages, held


def _prepare(mebibytes: int) -> dict[str, Any]:
    us: dict[int, float] = {}
    for page_bytes in (8192, 65_536):
        pages, held = _filled(mebibytes, page_bytes)
        found = []
        for sequence in range(_RUNS):
            begun = time.perf_counter()
            snapshot = pages.prepare(sequence)
            found.append((time.perf_counter() - begun) * 1e6)
            pages.cancelled(snapshot)
        us[page_bytes] = min(found)
    batches = list(held.scan())
    as_dict = {row["key"]: (row["count"], row["low"], row["high"]) for each in batches for row in each.to_pylist()}
    pickled_us = _best_s(lambda: pickle.dumps(as_dict, 5)) * 1e6
    arrow_us = _best_s(lambda: _to_arrow(held)) * 1e6
    return {
        "MiB of pages": mebibytes,
        "8 KiB pages, us": us[8192],
        "64 KiB pages, us": us[65_536],
        "Arrow IPC, us": arrow_us,
        "pickle of a dict, us": pickled_us,
        "Arrow IPC / 64 KiB": arrow_us / us[65_536],
    }


def _to_arrow(held: UnorderedMap) -> None:
    with pa.ipc.new_stream(pa.BufferOutputStream(), _SCHEMA) as sink:
        for batch in held.scan():
            sink.write(batch)


# -- Figure 9 ---------------------------------------------------------------------------------------


def _recovery(mebibytes: int, page_bytes: int) -> dict[str, Any]:
    pages, held = _filled(mebibytes, page_bytes)
    snapshot = pages.prepare(1)
    registered, rebuilt = [], []
    for _ in range(_RUNS):
        again = PageManager(page_bytes=page_bytes)
        first = again.frames.take_run(len(snapshot.ids))
        again.frames.words[first : first + len(snapshot.ids)] = pages.frames.words[snapshot.frames]
        begun = time.thread_time()
        again.adopt_sets(snapshot.sets)
        again.adopt_pages(first, snapshot.ids, 1, np.zeros(len(snapshot.ids), np.uint32))
        again.adopted()
        registered.append((time.thread_time() - begun) * 1000)
        begun = time.thread_time()
        assert len(UnorderedMap.create(again.page_set("groups"), _SCHEMA, "key")) == len(held)
        rebuilt.append((time.thread_time() - begun) * 1000)
    store = MemoryStore()
    pages.cancelled(snapshot)
    Checkpointer(pages, store, "unit").checkpoint()
    loading = Checkpointer(PageManager(page_bytes=page_bytes), store, "unit")
    begun = time.thread_time()
    loading.load()
    return {
        "MiB": mebibytes,
        "page KiB": page_bytes >> 10,
        "pages registered, ms": min(registered),
        "map rebuilt, ms": min(rebuilt),
        "all of it with checksums, from memory, ms": (time.thread_time() - begun) * 1000,
    }
