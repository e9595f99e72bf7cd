"""Latency of tuples while the state is checkpointed: SGuard's Table 7 and Figures 7 and 8.

An aggregate with 128 MB of groups gets 20,000 tuples per second, with keys all over the state. It is one operator,
four, or sixty-four, each with its part of the keys. The operators are checkpointed once, one after the other. The
latency of a tuple is the time from when it was due until it was applied. Every way runs in a process of its own.
The paper had 2,000 tuples per second for 600 s, a checkpoint of each operator every 60 s, and latencies from 22
ms; compare the ratios of the rows.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import show
from benchmarks.state_pictures import draw_latency

from .state_operators import RECORD_BYTES, WAYS, Part

RATE_PER_S = 20_000
_BATCH = 1000
_POLL_S = 0.0003
_BEFORE_S, _SECONDS, _BUCKET_S = 1.0, 8.0, 0.02
#: Table 7: mean and standard deviation in ms, for 1, 4 and 64 operators.
_PAPER = {
    "no checkpoints": ("21.6(1.63)", "21.8(1.63)", "22.7(1.58)"),
    "pages": ("202(645)", "22.2(1.91)", "22.8(1.66)"),
    "pickle, synchronous": ("617(1530)", "157(334)", "30.2(3.58)"),
    "pickle, asynchronous": ("302(862)", "100(208)", "26.6(5.49)"),
}
_SPLITS = (1, 4, 64)


@dataclass(frozen=True)
class Run:
    """Latencies in ms. `pauses_ms` are the pauses of operators for their checkpoints."""

    way: str
    operators: int
    latencies_ms: NDArray[np.float64]
    pauses_ms: list[float]

    def row(self) -> dict[str, Any]:
        return {
            "way": self.way,
            "operators": self.operators,
            "mean ms": float(self.latencies_ms.mean()),
            "deviation": float(self.latencies_ms.std()),
            "p50 ms": float(np.percentile(self.latencies_ms, 50)),
            "p99 ms": float(np.percentile(self.latencies_ms, 99)),
            "worst ms": float(self.latencies_ms.max()),
            "pause ms": max(self.pauses_ms, default=0.0),
            "paper, ms": _PAPER.get(self.way, ("",) * 3)[_SPLITS.index(self.operators)],
        }

    def line(self) -> list[tuple[float, float]]:
        """Return the worst latency of each 20 ms, with seconds since the first checkpoint."""
        per_bucket = int(RATE_PER_S * _BUCKET_S)
        count = len(self.latencies_ms) // per_bucket
        worst = self.latencies_ms[: count * per_bucket].reshape(count, per_bucket).max(axis=1)
        return [(at * _BUCKET_S - _BEFORE_S, float(value)) for at, value in enumerate(worst)]


def main(*, quick: bool = False, splits: tuple[int, ...] = _SPLITS) -> None:
    megabytes, seconds = (8, 2.0) if quick else (128, _SECONDS)
    ways = [way for way in WAYS if way != "RocksDB" or find_spec("rocksdict") is not None]
    runs = [measure(way, operators, megabytes, seconds) for operators in splits for way in ways]
    rows = [run.row() for run in runs]
    for row in rows:
        peers = [each for each in rows if each["operators"] == row["operators"] and "asynchronous" in each["way"]]
        row["worst of asynchronous Arrow"] = row["worst ms"] / peers[0]["worst ms"]
    title = f"{megabytes} MB of groups, {RATE_PER_S} tuples/s, {seconds:g} s with one checkpoint of each operator"
    show("state_latency", title, rows)
    for figure, operators in (("figure7", 1), ("figure8", 4)):
        lines = {run.way: run.line() for run in runs if run.operators == operators}
        if lines:
            draw_latency(
                f"sguard_{figure}",
                f"{megabytes} MB, {operators} operators" if operators > 1 else f"{megabytes} MB, one operator",
                lines,
            )


def measure(way: str, operators: int, megabytes: int, seconds: float) -> Run:
    """Run one way in a process of its own, so that a fork copies nothing else."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measure, (way, operators, megabytes, seconds))


def _measure(way: str, operators: int, megabytes: int, seconds: float) -> Run:
    records = megabytes * 10**6 // RECORD_BYTES
    rng = np.random.default_rng(1)
    spread = (rng.permutation(records) + 1) * 7919
    total = int(RATE_PER_S * (seconds + _BEFORE_S))
    chosen = spread[rng.integers(0, records, total)]
    of_part = chosen // 7919 % operators
    with tempfile.TemporaryDirectory() as name:
        parts: list[Part] = [
            WAYS[way](spread[spread // 7919 % operators == part], Path(name), f"part-{part}")
            for part in range(operators)
        ]
        _warm(parts, spread, operators)
        try:
            return _play(way, parts, chosen, of_part, seconds)
        finally:
            for part in parts:
                part.close()


def _warm(parts: list[Part], keys: NDArray[np.int64], operators: int) -> None:
    """Run and checkpoint each part once. As in the paper, only a checkpoint after this warm-up is measured."""
    for part, each in enumerate(parts):
        few = keys[keys // 7919 % operators == part][:100]
        each.apply(few, few)
        each.checkpoint()
        each.wait()


def _play(way: str, parts: list[Part], keys: NDArray[np.int64], of_part: NDArray[np.int64], seconds: float) -> Run:
    total = len(keys)
    done_s = np.empty(total)
    # The checkpoints of all parts begin evenly spaced within the first half.
    starts = [_BEFORE_S + seconds / 2 * part / len(parts) for part in range(len(parts))]
    pauses_ms: list[float] = []
    at = 0
    begun = time.perf_counter()
    while at < total:
        now = time.perf_counter() - begun
        if len(pauses_ms) < len(parts) and now >= starts[len(pauses_ms)] and way != "no checkpoints":
            paused = time.perf_counter()
            parts[len(pauses_ms)].checkpoint()
            pauses_ms.append((time.perf_counter() - paused) * 1000)
        due = min(int((time.perf_counter() - begun) * RATE_PER_S), total, at + _BATCH)
        if due <= at:
            time.sleep(_POLL_S)
            continue
        some, where = keys[at:due], of_part[at:due]
        for part in np.unique(where) if len(parts) > 1 else (0,):
            mine = some[where == part] if len(parts) > 1 else some
            parts[part].apply(mine, mine)
        done_s[at:due] = time.perf_counter() - begun
        at = due
    for part in parts:
        part.wait()
    latencies = (done_s - np.arange(total) / RATE_PER_S) * 1000
    return Run(way, len(parts), latencies, pauses_ms)
