"""Draw a failure and its recovery on real processes: output rows and their latency around a SIGKILL.

The query is a filter, windows of 200 ms every 10 ms by key, and a filter, each on a node of its own. The node of
the windows is killed with SIGKILL. The latency of an output row is counted from its window's end. The output is
compared with that of a failure-free run of the same rows, to find rows that are lost, repeated or wrong.
"""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from benchmarks.dataflows.costs import VirtualTimes
from benchmarks.dataflows.seeded import SeededRun
from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.hosts import run_events
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints
from peacefs.dataflow.hosts.edge_run import EdgeRun, RunOptions
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.model.stream_type import TIME
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.recovery.technique import Technique
from peacefs.dataflow.techniques.active_standby import ActiveStandby
from peacefs.dataflow.techniques.amnesia import Amnesia
from peacefs.dataflow.techniques.cec import CEC
from peacefs.dataflow.techniques.passive_standby import PassiveStandby
from peacefs.dataflow.techniques.sguard import SGuard
from peacefs.dataflow.techniques.upstream_backup import UpstreamBackup
from peacefs.state.warm import warm

from .report import show
from .side_by_side.verdict import Verdict, judge
from .state_pictures import draw

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Techniques by their names in the picture.
TECHNIQUES: dict[str, Callable[[], Technique]] = {
    "amnesia": Amnesia,
    "sguard": lambda: SGuard(interval_s=0.5),
    "upstream-backup": lambda: UpstreamBackup(precise=True),
    "upstream-backup-rollback": UpstreamBackup,
    "active-standby": ActiveStandby,
    "passive-standby": PassiveStandby,
    "cec": CEC,
}
_SCHEMA = pa.schema([("key", pa.string()), ("at", TIME), ("value", pa.int64())])
_KEYS = 16
FEEDS_PER_S = 100
ROWS_PER_FEED = 100
_BIN_MS = 10
_PATIENT_S = 20.0


@dataclass
class Failure:
    """The measurements of one run, with times in seconds since the kill."""

    #: (seconds, latency in ms) of each output row.
    seen: list[tuple[float, float]] = field(default_factory=list)
    noticed_s: float | None = None
    recovered_s: float | None = None
    verdict: Verdict | None = None

    @property
    def again_s(self) -> float:
        """The time of the first row that was made after the kill was noticed."""
        after = [at for at, _ in self.seen if self.noticed_s is not None and at > self.noticed_s]
        return min(after, default=float("nan"))


def main(*, quick: bool = False, technique: str | None = None) -> None:
    if technique is not None and technique not in TECHNIQUES:
        raise SystemExit(f"no technique is called {technique!r}; there are {', '.join(TECHNIQUES)}")
    warm()
    found = []
    for name in [technique] if technique is not None else TECHNIQUES:
        failure = observe(TECHNIQUES[name](), before_s=1.5, after_s=2.0 if quick else 3.5)
        assert failure.verdict is not None
        before = sorted(late for at, late in failure.seen if -1.0 < at < 0)
        found.append(
            {
                "technique": name,
                "noticed, s": failure.noticed_s,
                "recovered, s": failure.recovered_s,
                "output again, s": failure.again_s,
                "p50 before, ms": statistics.median(before),
                "worst, ms": max(late for _, late in failure.seen),
                "lost": failure.verdict.lost,
                "again": failure.verdict.repeated,
                "different": failure.verdict.wrong,
            }
        )
        draw(f"recovery_{name}", figure_of(name, failure) if find_spec("matplotlib") else None)
    show("recovery_pictures", "SIGKILL of the node of windows of 200 ms; seconds since the kill", found)


def observe(technique: Technique, *, before_s: float, after_s: float) -> Failure:
    """Run the query, kill a node, and return the measurements."""
    failure = Failure()
    placed = threading.Event()
    fed: list[pa.RecordBatch] = []
    out: list[tuple[float, pa.RecordBatch]] = []
    killed_s = float("inf")

    def feed() -> Iterator[pa.RecordBatch]:
        placed.wait()
        # The first second opens connections and fills caches.
        begun, seconds = time.monotonic(), 1.0 + before_s + after_s
        for number in range(int(seconds * FEEDS_PER_S)):
            time.sleep(max(begun + number / FEEDS_PER_S - time.monotonic(), 0))
            fed.append(rows_of_now(number))
            yield fed[-1]

    def watch(at_s: float, event: run_events.RunEvent) -> None:
        match event:
            case run_events.UnitsPlaced():
                placed.set()
            case run_events.NodeLost() if at_s > killed_s and failure.noticed_s is None:
                failure.noticed_s = at_s - killed_s
            case run_events.RecoveryMeasured("windows") if failure.recovered_s is None:
                failure.recovered_s = at_s - killed_s

    network = three_units()
    with tempfile.TemporaryDirectory() as directory:
        host = LocalProcesses(3, DirectoryCheckpoints(Path(directory)), node_timeout_s=_PATIENT_S)
        options = RunOptions(observer=watch)
        sinks = {"out": lambda rows: out.append((time.monotonic(), rows))}
        with host.start(network, technique, {"in": feed()}, sinks, options) as run:
            assert isinstance(run, EdgeRun)
            placed.wait()
            time.sleep(1.0 + before_s)
            node = run.place_of("windows")
            assert node is not None
            killed_s = time.monotonic()
            os.kill(host.pids()[node], signal.SIGKILL)
            run.wait()
    for at_s, rows in out:
        ends = rows.column("window_end").cast(pa.int64()).to_numpy() / 1e6
        failure.seen += [(at_s - killed_s, (at_s - end) * 1000) for end in ends.tolist()]
    # At the end of the stream, windows are output before they are complete.
    failure.seen = [(at, late) for at, late in failure.seen if late >= 0]
    times = VirtualTimes(rows_every_s=0.001)
    expected = SeededRun(network, Amnesia(), {"in": fed}, seed=1, times=times).run(until_s=1e6).rows("out")
    observed = [row for _, rows in out for row in zip(*rows.to_pydict().values(), strict=True)]
    failure.verdict = judge(expected, observed, lambda row: (row[0], row[2]))
    return failure


def figure_of(name: str, failure: Failure) -> Figure:
    """Draw output rows per ten milliseconds, and below them their latency."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 5.0), layout="constrained")
    above, below = figure.subplots(2, sharex=True)
    at = np.array([each for each, _ in failure.seen])
    late = np.array([each for _, each in failure.seen])
    width = _BIN_MS / 1000
    bins = np.arange(max(at.min(), -1.0), at.max() + width, width)
    above.stairs(np.histogram(at, bins)[0], bins, fill=True)
    above.set_ylabel(f"rows out in {_BIN_MS} ms")
    above.set_title(f"{name}: SIGKILL at 0")
    below.plot(at, late, ".", markersize=2)
    below.set_yscale("log")
    below.set_ylabel("latency, ms")
    below.set_xlabel("seconds since the kill")
    for axis in (above, below):
        axis.axvline(0, color="black", linewidth=1, label="killed")
        for what, when, color in (
            ("noticed", failure.noticed_s, "tab:orange"),
            ("caught up", failure.recovered_s, "tab:green"),
        ):
            if when is not None:
                axis.axvline(when, color=color, linewidth=1, linestyle="--", label=what)
    above.set_xlim(bins[0], bins[-1])
    above.legend(fontsize="small", loc="upper right")
    return figure


def three_units(window: str = "200ms", every: str = "10ms") -> Network:
    """Return the query. Its unit `windows` is killed."""
    query = Query("three")
    windows = query.source("in", _SCHEMA, time="at").filter(F.col("value") < 90).unit("windows").key_by("key")
    counted = windows.window(window, every).aggregate(F.count(), F.sum("value"))
    counted.unit("last").filter(F.col("count") > 0).sink("out")
    return query.network()


def rows_of_now(number: int) -> pa.RecordBatch:
    """Return the rows of one feed, with the present time."""
    chance = np.random.default_rng(number)
    now_us = int(time.monotonic() * 1_000_000)
    arrays = [
        pa.array([f"key-{key:02}" for key in chance.integers(0, _KEYS, ROWS_PER_FEED)]),
        pa.array(np.full(ROWS_PER_FEED, now_us)).cast(TIME),
        pa.array(chance.integers(0, 100, ROWS_PER_FEED)),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
