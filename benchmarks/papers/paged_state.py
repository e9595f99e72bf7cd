"""State in pages as in SGuard 6.1: joins (Table 5), aggregates (Table 6), checkpoints (Figure 6), recovery (Figure
9).

It also shows what 1 GB of state costs. `state_latency` has Table 7 and Figures 7 and 8.

All times are processor time of one thread, the best of several runs, so that other work on the machine matters
less. The aggregate keeps count, min and max by an 8-byte key, in batches of 65,536. For comparison, a dict of
lists holds the same one by one, and a flat table of fixed-size arrays holds it in a compiled loop: pages without
pages.
"""

from __future__ import annotations

import os
import pickle
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pyarrow as pa

from benchmarks.report import show
from benchmarks.state_pictures import draw_sizes
from peacefs.state import Checkpointer, DirectoryStore, MemoryStore, PageManager, Raw, UnorderedMap
from peacefs.state.kernels.places import HEADER_WORDS
from peacefs.state.pages.page_set import PageSet

_BATCH = 65_536
_SCHEMA = pa.schema([("key", pa.int64()), ("count", pa.int64()), ("low", pa.int64()), ("high", pa.int64())])
_RECORD_BYTES = 32
_RUNS = 3
#: Table 6: microseconds per tuple with pages, relative to the C++ library's ordered map.
_PAPER_TABLE_6 = {1: "1.13, 1.06", 10: "0.99, 0.93", 100: "0.66, 0.62"}
#: Table 5: the same for joins.
_PAPER_TABLE_5 = {256: "1.02, 1.02", 512: "1.03, 1.03", 1024: "1.02, 1.02"}
#: Number of tuples that are compared with the window together.
_JOIN_TUPLES = 64


def main(*, quick: bool = False) -> None:
    windows = (256,) if quick else (256, 512, 1024)
    joins = [_join(each) for each in _shown("join, window KB", windows)]
    show("paged_state_join", "join (Table 5): ns a tuple", joins)
    groups = (1000, 31_250) if quick else (1000, 31_250, 312_500, 3_125_000, 5_000_000)
    aggregates = [_aggregate(each, quick=quick) for each in _shown("aggregate, groups", groups)]
    show("paged_state_aggregate", "aggregate: ns a tuple", aggregates)
    sizes = (4, 16) if quick else (16, 64, 128, 256)
    prepared = [_prepare(each) for each in _shown("preparation, MiB", sizes)]
    show("paged_state_prepare", "preparing a checkpoint (Figure 6)", prepared)
    pools = (16,) if quick else (64, 128, 256, 512)
    recovered = [
        _recovery(size, page_bytes) for size in _shown("recovery, MiB", pools) for page_bytes in (8192, 65_536)
    ]
    show("paged_state_recovery", "recovery, when all pages were read (Figure 9)", recovered)
    _draw(prepared, recovered)
    large = [_large(each) for each in _shown("a large state, MiB", (64,) if quick else (256, 1024))]
    show("paged_state_large", "what state costs", large)


def _shown(what: str, sizes: Sequence[int]) -> Iterator[int]:
    """Yield sizes, and print which one is being measured, and since when."""
    begun = time.perf_counter()
    for size in sizes:
        print(f"{what} {size:,} ({time.perf_counter() - begun:.0f} s)", flush=True)
        yield size


def _draw(prepared: list[dict[str, Any]], recovered: list[dict[str, Any]]) -> None:
    ways = ("8 KiB pages, us", "64 KiB pages, us", "Arrow IPC, us", "pickle of a dict, us")
    draw_sizes(
        "sguard_figure6",
        "preparing a checkpoint",
        "microseconds",
        {way.removesuffix(", us"): [(row["MiB of pages"], row[way]) for row in prepared] for way in ways},
    )
    lines = {
        f"{size} KiB pages": [
            (row["MiB"], row["pages registered, ms"]) for row in recovered if row["page KiB"] == size
        ]
        for size in (8, 64)
    }
    draw_sizes("sguard_figure9", "recovery of the page manager", "milliseconds", lines)


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
    megabytes = groups * _RECORD_BYTES / 1e6
    return {
        "groups": groups,
        "MB": megabytes,
        **ns,
        "of flat": paged / ns["flat table"],
        "of dict": paged / ns["dict"],
        "paper: of original, 8 KB, 64 KB": _PAPER_TABLE_6.get(round(megabytes), ""),
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


# -- Table 5 ----------------------------------------------------------------------------------------


def _join(window_kb: int) -> dict[str, Any]:
    """Compare each tuple with every one in the window; none matches. 12,000 tuples, as in the paper.

    The window slides: new tuples overwrite the oldest. The comparison runs the same loop over one flat array.
    """
    rows, tuples = window_kb * 1000 // _RECORD_BYTES, 12_032
    keys = np.arange(tuples) + 10**9
    ns: dict[str, float] = {}
    for page_bytes in (65_536, 8192):
        page_set = PageManager(page_bytes=page_bytes).page_set("window")
        raw = Raw.create(page_set)
        per_page = raw.room // _RECORD_BYTES
        pages = [raw.allocate() for _ in range(-(-rows // per_page))]
        places = np.array(pages)

        def run(
            page_set: PageSet = page_set,
            raw: Raw = raw,
            per_page: int = per_page,
            pages: list[int] = pages,
            places: Any = places,
        ) -> int:
            found = 0
            for at, begin in enumerate(range(0, tuples, _JOIN_TUPLES)):
                batch = keys[begin : begin + _JOIN_TUPLES]
                found += _matches_in_pages(page_set.frames.words, page_set.table, places, per_page, batch)
                oldest = at * _JOIN_TUPLES % (len(pages) * per_page - _JOIN_TUPLES)
                page, slot = divmod(oldest, per_page)
                slot = min(slot, per_page - _JOIN_TUPLES)
                raw.change(pages[page]).view(np.int64)[: per_page * 4].reshape(-1, 4)[
                    slot : slot + _JOIN_TUPLES, 0
                ] = batch - 10**9
            return found

        assert run() == 0
        ns[f"pages of {page_bytes >> 10} KiB"] = _best_s(run) / tuples * 1e9 * rows / (len(pages) * per_page)
    window = np.zeros((rows, 4), np.int64)

    def run_flat() -> int:
        found = 0
        for at, begin in enumerate(range(0, tuples, _JOIN_TUPLES)):
            batch = keys[begin : begin + _JOIN_TUPLES]
            found += _matches(window, batch)
            oldest = at * _JOIN_TUPLES % (rows - _JOIN_TUPLES)
            window[oldest : oldest + _JOIN_TUPLES, 0] = batch - 10**9
        return found

    assert run_flat() == 0
    ns["flat array"] = _best_s(run_flat) / tuples * 1e9
    return {
        "window KB": window_kb,
        **ns,
        "8 KiB of flat": ns["pages of 8 KiB"] / ns["flat array"],
        "64 KiB of flat": ns["pages of 64 KiB"] / ns["flat array"],
        "paper: of original, 8 KB, 64 KB": _PAPER_TABLE_5[window_kb],
    }


@numba.njit(nogil=True, cache=True)  # type: ignore[misc, unused-ignore]
def _matches(window: Any, keys: Any) -> int:
    found = 0
    for number in range(keys.shape[0]):
        for row in range(window.shape[0]):
            found += window[row, 0] == keys[number]
    return found


@numba.njit(nogil=True, cache=True)  # type: ignore[misc, unused-ignore]
def _matches_in_pages(words: Any, table: Any, pages: Any, per_page: int, keys: Any) -> int:
    """Match records that lie behind the headers of pages."""
    found = 0
    for page in pages:
        found += _matches(
            words[table[page], HEADER_WORDS : HEADER_WORDS + 4 * per_page].reshape(per_page, 4), keys
        )
    return found


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


# -- what a gigabyte costs --------------------------------------------------------------------------


def _large(mebibytes: int) -> dict[str, Any]:
    """Keep it, checkpoint it into a directory, whole and after some keys have changed, and recover it.

    A hash spreads keys over all pages, so each page has a hundredth of them.
    """
    pages, held = _filled(mebibytes, 65_536)
    records = len(held)
    with tempfile.TemporaryDirectory() as directory:
        checkpointer = Checkpointer(pages, DirectoryStore(directory), "large")
        while not checkpointer.reserved:
            time.sleep(0.01)
        resident = _resident_bytes()
        whole, whole_s = _timed(checkpointer.checkpoint)
        held.aggregate(np.arange(1000), {"count": ("add", 1)})
        few, few_s = _timed(checkpointer.checkpoint)
        held.aggregate(np.arange(records // 100), {"count": ("add", 1)})
        part, part_s = _timed(checkpointer.checkpoint)
        checkpointer.close()
        again = PageManager(page_bytes=65_536)
        loading = Checkpointer(again, DirectoryStore(directory), "large", reserve=False)
        _, load_s = _timed(loading.load)
        found, map_s = _timed(lambda: UnorderedMap.create(again.page_set("groups"), _SCHEMA, "key"))
        assert len(found) == records
    return {
        "MiB of pages": pages.memory_bytes >> 20,
        "records": records,
        "bytes a record": pages.memory_bytes / records,
        "resident MiB, with the reserve": resident >> 20,
        "pause, ms": max(each.pause_s for each in (whole, few, part)) * 1000,
        "whole, s": whole_s,
        "after 1,000 keys, MiB": few.bytes_written >> 20,
        "of it, s ": few_s,
        "after 1 % of the keys, MiB": part.bytes_written >> 20,
        "of it, s": part_s,
        "load and verify, s": load_s,
        "map rebuilt, ms": map_s * 1000,
    }


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _timed(run: Callable[[], Any]) -> tuple[Any, float]:
    begun = time.perf_counter()
    found = run()
    return found, time.perf_counter() - begun
