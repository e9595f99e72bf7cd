"""peacefs beside HDFS and SeaweedFS on this machine: names, small files, large files, micro-batches of Spark.

Each system has three datanodes and three replicas, in separate processes. All run at the same time and take turns
row by row, so that a busy moment of the machine affects all of them. HDFS comes from Maven's artifacts and is used
through its own client in one JVM, SeaweedFS is the `weed` on the path and is used over HTTP, and peacefs is used
through our client and through bare sockets with WebHDFS. A system that is missing has a row that says so.

Their guarantees differ, and each row says what was on a disk at the acknowledgement. Processor time is that of all
servers of a system. Begin with `rows`, the measurements; `systems` contains the systems.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import show

from .micro_batches import compare_batches
from .rows import GROUPS, Measured, measure
from .systems import OURS, Missing, running_systems

BATCHES = "batches"
CHOICES = (*GROUPS, BATCHES)


def main(*, quick: bool = False, rows: Sequence[str] = CHOICES, mebibytes: int | None = None) -> None:
    """`rows` are groups of rows, of CHOICES; `mebibytes` is how large a large file is, if not as usual."""
    if unknown := set(rows) - set(CHOICES):
        raise SystemExit(f"no rows are called {', '.join(sorted(unknown))}; there are {', '.join(CHOICES)}")
    if mebibytes is not None and mebibytes < 1:
        raise SystemExit(f"a large file of {mebibytes} MiB cannot be read back: give --mebibytes 1 or more")
    seconds, rounds, usual, names = (0.3, 2, 32, 1000) if quick else (2.0, 5, 1024, 10_000)
    mebibytes = usual if mebibytes is None else mebibytes
    with tempfile.TemporaryDirectory() as directory, running_systems(Path(directory)) as (systems, missing):
        measured: list[Measured] = []
        for group in GROUPS:
            if group in rows:
                measured += measure(
                    group, systems, seconds=seconds, rounds=rounds, mebibytes=mebibytes, names=names
                )
        if measured:
            title = f"{seconds:g} s each, large files of {mebibytes} MiB, the median of {rounds} rounds in turn"
            show("peers", title, _table(measured, missing))
        if BATCHES in rows:
            compare_batches(Path(directory), systems, quick=quick)


def _table(measured: Sequence[Measured], missing: Sequence[Missing]) -> list[dict[str, object]]:
    rates = {(each.row, each.clients, each.system): each.rates for each in measured}
    rows: list[dict[str, object]] = []
    for each in measured:
        ours = rates[each.row, each.clients, OURS]
        rows.append(
            {
                "row": each.row,
                "clients": each.clients,
                "system": each.system,
                "rate": f"{statistics.median(each.rates):,.0f} {each.unit}",
                "of our client's": f"{_median_ratio(each.rates, ours):.2f}",
                "range": f"{min(each.rates):,.0f} to {max(each.rates):,.0f}",
                "servers' CPU, ms": f"{statistics.median(each.cpu_ms):.3f}",
                "on disk when acknowledged": each.synced,
            }
        )
    for absent in missing:
        rows.append({**dict.fromkeys(rows[0], ""), "row": "missing", "system": absent.system, "rate": absent.why})
    return rows


def _median_ratio(rates: Sequence[float], others: Sequence[float]) -> float:
    return statistics.median(rate / other for rate, other in zip(rates, others, strict=True))
