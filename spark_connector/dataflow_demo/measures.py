"""Measure the demo: throughput, latencies before, during and after the failure, checkpoints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from . import news

Row = tuple[int, str, int]


class Latency(msgspec.Struct, frozen=True):
    """The latency of windows in ms: from the line that completes a window to the window's rows at the sink."""

    windows: int
    p50_ms: float
    p99_ms: float


class Checkpoints(msgspec.Struct, frozen=True):
    count: int
    bytes_median: int
    bytes_max: int
    pages_written: int
    pages_referred: int
    pause_ms_median: float
    pause_ms_max: float
    stored_ms_median: float


class Report(msgspec.Struct, frozen=True):
    input: str
    java: int
    lines: int
    rows: int
    seconds: float
    lines_per_s: float
    latency: dict[str, Latency | None]
    checkpoints: Checkpoints | None
    killed_executor: int
    killed_datanode: str
    detect_s: float
    load_s: float
    replay_s: float
    output_again_s: float
    differences: list[str]
    demo_seconds: float

    @property
    def equal(self) -> bool:
        return not self.differences


def latencies(delivered: Sequence[news.Delivered], killed_s: float, again_s: float) -> dict[str, Latency | None]:
    """Group windows by phase: before the failure, during it (until output came again), and after.

    A window that was completed before the failure and delivered after it counts as during.
    """
    phases: dict[str, list[float]] = {"before": [], "during": [], "after": []}
    for each in delivered:
        if each.at_s < killed_s:
            phases["before"].append(each.latency_ms)
        elif each.offered_s < again_s:
            phases["during"].append(each.latency_ms)
        else:
            phases["after"].append(each.latency_ms)
    return {phase: latency(found) for phase, found in phases.items()}


def latency(found: Sequence[float]) -> Latency | None:
    if not found:
        return None
    ordered = sorted(found)
    return Latency(len(ordered), round(share(ordered, 0.5), 1), round(share(ordered, 0.99), 1))


def share(ordered: Sequence[float], part: float) -> float:
    """Return the quantile `part` of sorted values."""
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)]


def checkpoints(taken: Sequence[news.Checkpointed]) -> Checkpoints | None:
    if not taken:
        return None
    sizes = sorted(each.bytes_written for each in taken)
    pauses = sorted(each.pause_ms for each in taken)
    return Checkpoints(
        len(taken),
        int(share(sizes, 0.5)),
        sizes[-1],
        sum(each.pages_written for each in taken),
        sum(each.pages_referred for each in taken),
        round(share(pauses, 0.5), 2),
        round(pauses[-1], 2),
        round(share(sorted(each.stored_ms for each in taken), 0.5), 1),
    )


def differences(streamed: Sequence[Row], batch: Sequence[Row]) -> list[str]:
    """Return rows that one side has more often, one per line: `-` if the stream lacks it, else `+`."""
    one, other = Counter(streamed), Counter(batch)
    marked = [(row, "+") for row in (one - other).elements()] + [(row, "-") for row in (other - one).elements()]
    return [
        f"{mark} {datetime.fromtimestamp(start / 1e6, UTC):%Y-%m-%d %H:%M} {source} {failures}"
        for (start, source, failures), mark in sorted(marked)
    ]
