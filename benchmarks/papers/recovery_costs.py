"""The approaches of HA, SGuard and CEC on real processes: their costs, and recovery by M, window and advance.

The query is that of `recovery_pictures`, with 10,000 rows per second in 100 batches, a node process for each unit
and each standby, and links over loopback. *Costs* are counted without failures: processor time of the node
processes, bytes on links by kind, and bytes written to files. *Recovery* is the time from when the SIGKILL of the
node with the windows is noticed until the unit has processed all waiting input (HA, section 4); the median of
several kills.

Two comparisons are printed with it. HA's cells with the real cores in virtual time (`python -m benchmarks
ha_figure6`) have the same M, and windows and advances of the same duration. The closed forms of HA's Table 3 use
HA's parameters: 1,000 rows per second one by one, links of 16 Mb/s, 40 ms to redirect a stream, operators of 10 us
times window / advance.
"""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from benchmarks.dataflows.costs import Traffic
from benchmarks.dataflows.link_traffic import LinkTraffic
from benchmarks.papers.ha_experiment import Measured, Setup, measure
from benchmarks.papers.ha_results import APPROACHES
from benchmarks.processor_time import cpu_s
from benchmarks.recovery_pictures import FEEDS_PER_S, ROWS_PER_FEED, rows_of_now, three_units
from benchmarks.report import show
from benchmarks.state_pictures import draw
from peacefs.dataflow.core.bounds import Bounds
from peacefs.dataflow.hosts import run_events
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints
from peacefs.dataflow.hosts.edge_run import EdgeRun, RunOptions
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.recovery.technique import Technique
from peacefs.dataflow.techniques.active_standby import ActiveStandby
from peacefs.dataflow.techniques.amnesia import Amnesia
from peacefs.dataflow.techniques.cec import CEC
from peacefs.dataflow.techniques.passive_standby import PassiveStandby
from peacefs.dataflow.techniques.sguard import SGuard
from peacefs.dataflow.techniques.upstream_backup import UpstreamBackup
from peacefs.state.warm import warm

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: A technique for an interval M in seconds: between copies, acknowledgements, checkpoints, or commits to the log.
TECHNIQUES: Mapping[str, Callable[[float], Technique]] = {
    "amnesia": lambda _: Amnesia(),
    "upstream backup": lambda interval_s: UpstreamBackup(interval_s=interval_s, precise=True),
    "active standby": lambda interval_s: ActiveStandby(interval_s=interval_s),
    "passive standby": lambda interval_s: PassiveStandby(interval_s=interval_s),
    "SGuard": lambda interval_s: SGuard(interval_s=interval_s),
    "CEC": lambda interval_s: CEC(commit_s=interval_s),
}
#: The paper's techniques, by their names there.
_IN_PAPER = {
    "upstream backup": "upstream backup, precise",
    "active standby": "active standby, precise",
    "passive standby": "passive standby",
}
_UNIT = "windows"
_BOUNDS = Bounds(page_bytes=8192)
_WARM_S = 0.8
#: Seconds between a recovery and the next kill: by then the node is back, and its standby has a copy.
_SETTLED_S = 0.7
_PATIENT_S = 30.0
_Found = TypeVar("_Found")


@dataclass(frozen=True)
class Case:
    """M, and the windows of the query, in milliseconds. The defaults are HA's."""

    interval_ms: int = 50
    window_ms: int = 100
    advance_ms: int = 10

    @property
    def setup(self) -> Setup:
        """The setup for the simulation, where one row arrives per millisecond."""
        return Setup(window=self.window_ms, advance=self.advance_ms, interval_s=self.interval_ms / 1000)


@dataclass
class Costs:
    """Costs of all node processes, per row of the source."""

    processor_us: float = 0.0
    link_bytes: Mapping[Traffic, float] = field(default_factory=dict)
    file_bytes: float = 0.0
    #: Input rows of the unit that is killed, and all bytes on links for its recovery.
    input_bytes: float = 0.0
    recovery_bytes: float = 0.0

    @property
    def all_bytes(self) -> float:
        return sum(self.link_bytes.values())


@dataclass
class Seen:
    """The measurements of one run; seconds since each kill."""

    costs: Costs = field(default_factory=Costs)
    noticed_s: list[float] = field(default_factory=list)
    recovered_s: list[float] = field(default_factory=list)
    again_s: list[float] = field(default_factory=list)

    @property
    def recovery_ms(self) -> float:
        """Recovery times, measured from the detection as in the paper."""
        pairs = zip(self.noticed_s, self.recovered_s, strict=True)
        return statistics.median(1000 * (recovered - noticed) for noticed, recovered in pairs)


def main(*, quick: bool = False) -> None:
    warm()
    counted_s, kills, runs = (1.0, 1, 1) if quick else (2.0, 2, 2)
    base = Case()
    by_interval = [Case(interval_ms) for interval_ms in ((50, 200) if quick else (25, 50, 100, 200))]
    by_window = [] if quick else [Case(window_ms=size) for size in (200, 500)]
    by_advance = [] if quick else [Case(advance_ms=advance) for advance in (50, 5)]
    seen: dict[tuple[str, Case], Seen] = {}
    wanted = [("amnesia", base), *((name, case) for case in by_interval for name in list(TECHNIQUES)[1:])]
    if quick:
        # Each technique once, and the paper's with other values of M.
        wanted = [(name, case) for name, case in wanted if case == base or name in _IN_PAPER]
    wanted += [(name, case) for case in (*by_window, *by_advance) for name in _IN_PAPER]
    for name, case in wanted:
        seen[name, case] = found = observe(TECHNIQUES[name](case.interval_ms / 1000), case, counted_s, kills)
        print(
            f"  {name}, M {case.interval_ms}, window {case.window_ms}, advance {case.advance_ms} ms: "
            f"{found.costs.processor_us:.1f} us and {found.costs.all_bytes:.0f} bytes a row, "
            f"recovered in {found.recovery_ms:.0f} ms",
            flush=True,
        )
    simulated = simulate(wanted, runs)
    print(f"  {len(simulated)} cells simulated", flush=True)
    _show_costs(seen, [(name, case) for name, case in wanted if case in by_interval], simulated)
    title = f"SIGKILL of the node of the windows: ms, the median of {kills}; simulated: the mean of {runs}"
    rows = [_recovery(name, case, found, simulated) for (name, case), found in seen.items()]
    show("recovery_costs_recovery", title, rows)
    draw("recovery_costs", _figure(rows) if find_spec("matplotlib") else None)


# -- tables -------------------------------------------------------------------------------------------------


def _show_costs(
    seen: Mapping[tuple[str, Case], Seen],
    wanted: Sequence[tuple[str, Case]],
    simulated: Mapping[tuple[str, Case], Measured],
) -> None:
    plain = seen["amnesia", Case()].costs
    rows = []
    for name, case in wanted:
        costs = seen[name, case].costs
        rows.append(
            {
                "technique": name,
                "M ms": case.interval_ms,
                "processor us/row": costs.processor_us,
                "of amnesia": costs.processor_us / plain.processor_us,
                "bytes/row": costs.all_bytes,
                "of amnesia, bytes": costs.all_bytes / plain.all_bytes,
                "data": costs.link_bytes[Traffic.DATA],
                "copies": costs.link_bytes[Traffic.REPLICATION],
                "acks": costs.link_bytes[Traffic.ACKNOWLEDGEMENT],
                "control": costs.link_bytes[Traffic.CONTROL],
                "files": costs.file_bytes,
            }
        )
    show("recovery_costs", f"{FEEDS_PER_S * ROWS_PER_FEED:,} rows/s through three units, nothing fails", rows)
    found = [
        {
            "technique": name,
            "M ms": case.interval_ms,
            "of the input %": _overhead(seen[name, case].costs, plain),
            "simulated %": 100 * simulated[name, case].bandwidth,
            "with its pages %": 100 * simulated[name, case].bandwidth_of_pages,
            "closed form %": 100 * APPROACHES[_IN_PAPER[name]].bandwidth(case.setup.load),
        }
        for name, case in wanted
        if name in _IN_PAPER
    ]
    show("recovery_costs_overhead", "Bytes on links for the recovery of the unit, of those of its input", found)


def _overhead(costs: Costs, plain: Costs) -> float:
    """Percent of the unit's input bytes: rows to a second node, acknowledgements, copies."""
    return 100 * (costs.input_bytes - plain.input_bytes + costs.recovery_bytes) / plain.input_bytes


def _recovery(
    name: str, case: Case, found: Seen, simulated: Mapping[tuple[str, Case], Measured]
) -> dict[str, Any]:
    paper = _IN_PAPER.get(name)
    return {
        "technique": name,
        "M ms": case.interval_ms,
        "window": case.window_ms,
        "advance": case.advance_ms,
        "noticed": 1000 * statistics.median(found.noticed_s),
        "recovery": found.recovery_ms,
        "simulated": "" if paper is None else 1000 * simulated[name, case].recovery_s,
        "closed form": "" if paper is None else 1000 * APPROACHES[paper].recovery_s(case.setup.load),
        "output again": 1000 * statistics.median(found.again_s),
    }


def simulate(cells: Sequence[tuple[str, Case]], runs: int) -> dict[tuple[str, Case], Measured]:
    """Run the cells of the paper's techniques, each several times, in two processes."""
    mine = [(name, case) for name, case in cells if name in _IN_PAPER]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        return dict(zip(mine, pool.map(_simulated, mine, repeat(runs)), strict=True))


def _simulated(cell: tuple[str, Case], runs: int) -> Measured:
    name, case = cell
    return measure(case.setup, APPROACHES[_IN_PAPER[name]].technique, runs)


# -- one run ------------------------------------------------------------------------------------------------


def observe(technique: Technique, case: Case, counted_s: float, kills: int) -> Seen:
    """Run the query, measure its costs, and kill the node of the windows several times."""
    seen, placed, over = Seen(), threading.Event(), threading.Event()
    events: list[tuple[float, run_events.RunEvent]] = []
    outputs: list[float] = []
    fed = 0

    def feed() -> Iterator[pa.RecordBatch]:
        nonlocal fed
        placed.wait()
        begun = time.monotonic()
        while not over.is_set():
            time.sleep(max(begun + fed / FEEDS_PER_S - time.monotonic(), 0))
            yield rows_of_now(fed)
            fed += 1

    def watch(at_s: float, event: run_events.RunEvent) -> None:
        events.append((at_s, event))
        if isinstance(event, run_events.UnitsPlaced):
            placed.set()

    network = three_units(f"{case.window_ms}ms", f"{case.advance_ms}ms")
    streams, unit = network.unit(_UNIT).inputs, _UNIT
    with tempfile.TemporaryDirectory() as name:
        traffic = LinkTraffic(Path(name) / "traffic")
        # With standbys, use twice the nodes, so that no unit shares a node with its producer; such rows would cost
        # no bytes.
        nodes = 3 * technique.nodes_min
        host = LocalProcesses(
            nodes, DirectoryCheckpoints(Path(name) / "checkpoints"), bounds=_BOUNDS, node_timeout_s=_PATIENT_S
        )
        options = RunOptions(observer=watch, traffic=traffic)
        sinks = {"out": lambda _: outputs.append(time.monotonic())}
        with host.start(network, technique, {"in": feed()}, sinks, options) as run:
            assert isinstance(run, EdgeRun)
            try:
                placed.wait()
                time.sleep(_WARM_S)
                before, pids = _Account.of(host, traffic, fed), set(host.pids().values())
                time.sleep(counted_s)
                assert pids == set(host.pids().values()), "a node died before it was killed"
                seen.costs = _Account.of(host, traffic, fed).since(before, streams, unit)
                for _ in range(kills):
                    _kill(host, run, technique, events, outputs, seen)
            finally:
                over.set()
            run.wait()
    return seen


def _kill(
    host: LocalProcesses,
    run: EdgeRun,
    technique: Technique,
    events: list[tuple[float, run_events.RunEvent]],
    outputs: list[float],
    seen: Seen,
) -> None:
    """Kill the node of the unit. Wait until it has recovered and another kill is possible."""
    node = run.place_of(_UNIT)
    assert node is not None
    killed_s = time.monotonic()
    os.kill(host.pids()[node], signal.SIGKILL)

    def first(of: type[run_events.NodeLost | run_events.RecoveryMeasured]) -> float | None:
        return next(
            (
                at_s
                for at_s, event in list(events)
                if at_s > killed_s and isinstance(event, of) and getattr(event, "unit", _UNIT) == _UNIT
            ),
            None,
        )

    noticed_s = _until(lambda: first(run_events.NodeLost))
    recovered_s = _until(lambda: first(run_events.RecoveryMeasured))
    # Rows that were in transit from the dead node come first.
    again_s = _until(lambda: next((at for at in list(outputs) if at > noticed_s), None))
    seen.noticed_s.append(noticed_s - killed_s)
    seen.recovered_s.append(recovered_s - killed_s)
    seen.again_s.append(again_s - killed_s)
    if technique.replicas.paired:
        _until(lambda: run.standby_of(_UNIT))
    time.sleep(_SETTLED_S)


def _until(look: Callable[[], _Found | None]) -> _Found:
    deadline_s = time.monotonic() + _PATIENT_S
    while (found := look()) is None:
        assert time.monotonic() < deadline_s, "the unit did not recover"
        time.sleep(0.002)
    return found


@dataclass(frozen=True)
class _Account:
    """Processor time and bytes up to some moment."""

    rows: int
    processor_s: float
    file_bytes: int
    traffic: Counter[tuple[Traffic, str]]

    @classmethod
    def of(cls, host: LocalProcesses, traffic: LinkTraffic, feeds: int) -> _Account:
        processor_s, written = 0.0, 0
        for pid in host.pids().values():
            processor_s += cpu_s(pid)
            # Count calls that write files, but not sockets.
            lines = Path(f"/proc/{pid}/io").read_text().splitlines()
            written += next(int(line.split()[1]) for line in lines if line.startswith("wchar"))
        return cls(feeds * ROWS_PER_FEED, processor_s, written, traffic.total())

    def since(self, before: _Account, streams: Sequence[str], unit: str) -> Costs:
        rows = self.rows - before.rows
        sent = self.traffic - before.traffic
        kinds = dict.fromkeys(Traffic, 0.0)
        for (kind, _), size in sent.items():
            kinds[kind] += size / rows
        extra = sent[Traffic.REPLICATION, unit] + sum(sent[Traffic.ACKNOWLEDGEMENT, each] for each in streams)
        return Costs(
            1e6 * (self.processor_s - before.processor_s) / rows,
            kinds,
            (self.file_bytes - before.file_bytes) / rows,
            sum(sent[Traffic.DATA, each] for each in streams) / rows,
            extra / rows,
        )


# -- the picture --------------------------------------------------------------------------------------------


def _figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw recovery by M, window and advance: measurements as lines, simulations as dashes."""
    from matplotlib.figure import Figure

    base = Case()
    figure = Figure(figsize=(10.0, 4.0), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    for axis, by, others in (
        (axes[0], "M ms", {"window": base.window_ms, "advance": base.advance_ms}),
        (axes[1], "window", {"M ms": base.interval_ms, "advance": base.advance_ms}),
        (axes[2], "advance", {"M ms": base.interval_ms, "window": base.window_ms}),
    ):
        for number, name in enumerate(list(TECHNIQUES)[1:]):
            mine = [row for row in rows if row["technique"] == name]
            mine = [row for row in mine if all(row[what] == value for what, value in others.items())]
            mine.sort(key=lambda row: row[by])
            at, color = [row[by] for row in mine], f"C{number}"
            if len(mine) < 2:
                continue
            axis.plot(at, [row["recovery"] for row in mine], marker="o", color=color, label=name)
            if name in _IN_PAPER:
                axis.plot(at, [row["simulated"] for row in mine], linestyle="--", color=color)
        axis.set_xlabel(f"{by.removesuffix(' ms')}, ms")
        axis.set_ylim(bottom=0)
    axes[0].set_ylabel("recovery, ms (dashed: simulated)")
    axes[0].legend(fontsize="small")
    return figure
