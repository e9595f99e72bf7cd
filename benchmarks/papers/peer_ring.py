"""The peer ring on real processes: Figures 5 to 8 of Streaming MapReduce.

Reducers of a ring, each a process, count words; mappers are in this program. Nodes are killed with SIGKILL. There
are two cores instead of twenty machines, so the cost of a copy is given as processor time per tuple over all
processes.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.report import show
from benchmarks.state_pictures import draw
from peacefs.dataflow import Query
from peacefs.dataflow.model.stream_type import TIME
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.techniques.peer_ring import PeerRing
from peacefs.state.warm import warm

from . import peer_ring_relief
from .peer_ring_runs import PATIENT_S, SILENCE_S, RingUnderTest, with_ring

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SCHEMA = pa.schema([("word", pa.string()), ("at", TIME)])
_WORDS = 50_000
_BATCH_ROWS = 5_000
_WARM_BATCHES = 10


def main(*, quick: bool = False) -> None:
    warm()
    _throughput(batches=150 if quick else 600)
    peer_ring_relief.measure(quick=quick)
    _checkpoint_sizes((0.5, 2.0) if quick else (0.5, 1.0, 2.0, 5.0, 10.0), seconds=8.0 if quick else 30.0)
    _recovery((1, 2) if quick else (1, 2, 3), nodes=4 if quick else 6, runs=1 if quick else 3)
    _takeover_picture(seconds=8.0 if quick else 14.0)


# -- the query ---------------------------------------------------------------------------------------


def _count(rows: pa.RecordBatch, state: Any) -> pa.RecordBatch:
    """Count words, without output, so that only the ring is measured."""
    state.add_at(rows.column("word"), 1)
    return rows.slice(0, 0)


def _network() -> Network:
    text = Query("words").source("text", _SCHEMA, time="at")
    return text.process(_count, state={"word": "string", "count": "int64"}, key="word").sink("out").network()


def _batches(seed: int, count: int) -> list[pa.RecordBatch]:
    """Return batches of words with the frequencies of a natural language (Zipf)."""
    chance = np.random.default_rng(seed)
    weights = 1 / np.arange(1, _WORDS + 1)
    cumulated = np.cumsum(weights / weights.sum())
    names = np.array([f"word-{number}" for number in range(_WORDS)])
    times = pa.array([0] * _BATCH_ROWS, TIME)
    return [
        pa.record_batch(
            [pa.array(names[np.searchsorted(cumulated, chance.random(_BATCH_ROWS))]), times], schema=_SCHEMA
        )
        for _ in range(count)
    ]


# -- Figure 5: what a copy costs -----------------------------------------------------------------------


def _throughput(*, batches: int) -> None:
    rows = _batches(1, batches)
    found: list[dict[str, Any]] = []
    first_us: float | None = None
    for r in (0, 1, 2):
        measured: dict[str, float] = {}
        go = threading.Event()

        def given(go: threading.Event = go) -> Iterator[pa.RecordBatch]:
            # Load kernels and fill maps before anything is measured.
            yield from rows[:_WARM_BATCHES]
            go.wait()
            yield from rows

        def look(ring: RingUnderTest, measured: dict[str, float] = measured, go: threading.Event = go) -> None:
            while ring.run.progress("text")[1] < _WARM_BATCHES:
                time.sleep(0.05)
            begun_s, used_s = time.monotonic(), ring.processor_s()
            go.set()
            ring.run.wait(PATIENT_S)
            measured["wall"] = time.monotonic() - begun_s
            measured["cpu"] = ring.processor_s() - used_s

        with_ring(_network(), 3, PeerRing(r=r, silence_s=SILENCE_S, balances=False), given(), look)
        tuples = batches * _BATCH_ROWS
        each_us = measured["cpu"] / tuples * 1e6
        first_us = each_us if first_us is None else first_us
        found.append(
            {
                "r": r,
                "tuples a second": tuples / measured["wall"],
                "processor us a tuple": each_us,
                "of r = 0": each_us / first_us,
                "throughput a processor second, of r = 0": first_us / each_us,
            }
        )
    show("peer_ring_throughput", "three reducers, as fast as they can (SMR, Figure 5)", found)
    draw("peer_ring_throughput", _bars(found) if find_spec("matplotlib") else None)


# -- Figure 7: sizes of checkpoints ----------------------------------------------------------------------


def _checkpoint_sizes(intervals: tuple[float, ...], *, seconds: float) -> None:
    found = []
    for interval_s in intervals:
        shares: list[float] = []
        stop = threading.Event()

        def look(ring: RingUnderTest, shares: list[float] = shares, stop: threading.Event = stop) -> None:
            time.sleep(seconds)
            for _ in range(4):
                shares.extend(each.checkpoint_share for each in ring.run.figures().values() if each.state_keys)
                time.sleep(0.6)
            stop.set()
            ring.run.wait(PATIENT_S)

        technique = PeerRing(r=1, checkpoint_s=interval_s, silence_s=SILENCE_S, balances=False)
        with_ring(_network(), 3, technique, _at_rate(_batches(2, 64), 1.0, stop), look)
        found.append({"interval, s": interval_s, "keys of the state, %": 100 * statistics.mean(shares)})
    show("peer_ring_checkpoints", f"{_BATCH_ROWS:,} tuples a second, {_WORDS:,} words (SMR, Figure 7)", found)
    draw("peer_ring_checkpoints", _shares(found) if find_spec("matplotlib") else None)


def _at_rate(rows: list[pa.RecordBatch], batches_per_s: float, stop: threading.Event) -> Iterator[pa.RecordBatch]:
    """Send batches at a rate, repeatedly, in ten pieces each."""
    begun_s, number = time.monotonic(), 0
    while not stop.is_set():
        batch = rows[number // 10 % len(rows)]
        part = _BATCH_ROWS // 10
        yield batch.slice(number % 10 * part, part)
        number += 1
        wait_s = begun_s + number / (10 * batches_per_s) - time.monotonic()
        if wait_s > 0:
            stop.wait(wait_s)


# -- Figure 8: recovery ------------------------------------------------------------------------------------


def _recovery(failures: tuple[int, ...], *, nodes: int, runs: int) -> None:
    found = []
    for count in failures:
        times = [_recover(count, nodes) for _ in range(runs)]
        noticed = [noticed_s for noticed_s, _ in times]
        whole = [whole_s for _, whole_s in times]
        found.append(
            {
                "killed at once": count,
                "taken over, s": statistics.median(noticed),
                "all results, s": statistics.median(whole),
                "worst": max(whole),
            }
        )
    title = f"{nodes} reducers, r = 1; from SIGKILL until neighbours own the intervals, and all results are there"
    show("peer_ring_recovery", f"{title} (SMR, Figure 8b)", found)
    draw("peer_ring_recovery", _recoveries(found) if find_spec("matplotlib") else None)


def _recover(count: int, nodes: int) -> tuple[float, float]:
    measured: dict[str, float] = {}
    stop = threading.Event()

    def look(ring: RingUnderTest) -> None:
        time.sleep(4.0)
        order = ring.run.ring()
        dead = [order[2 * at] for at in range(count)]
        killed_s = time.monotonic()
        for node in dead:
            ring.kill(node)
        sent, _ = ring.run.progress("text")
        while set(dead) & set(ring.run.ring()):
            time.sleep(0.005)
        measured["noticed"] = time.monotonic() - killed_s
        while ring.run.progress("text")[1] < sent:
            time.sleep(0.005)
        measured["whole"] = time.monotonic() - killed_s
        stop.set()
        ring.run.wait(PATIENT_S)

    technique = PeerRing(r=1, checkpoint_s=1.0, silence_s=SILENCE_S, balances=False)
    with_ring(_network(), nodes, technique, _at_rate(_batches(3, 64), 3.0, stop), look)
    return measured["noticed"], measured["whole"]


def _takeover_picture(*, seconds: float) -> None:
    """Draw the rows that each node processes while one of three is killed (SMR, Figure 8a)."""
    seen: dict[str, list[tuple[float, int, int]]] = {}
    stop = threading.Event()
    marks: list[float] = []

    def look(ring: RingUnderTest) -> None:
        begun_s, killed = time.monotonic(), False
        while (now_s := time.monotonic() - begun_s) < seconds:
            if not killed and now_s > seconds / 2:
                killed = True
                marks.append(now_s)
                ring.kill(ring.run.ring()[1])
            for node, each in ring.run.figures().items():
                seen.setdefault(node, []).append((now_s, each.processed_rows, each.backup_bytes))
            time.sleep(0.25)
        stop.set()
        ring.run.wait(PATIENT_S)

    technique = PeerRing(r=1, checkpoint_s=1.0, silence_s=SILENCE_S, balances=False)
    with_ring(_network(), 3, technique, _at_rate(_batches(4, 64), 3.0, stop), look)
    draw("peer_ring_takeover", _takeover(seen, marks[0]) if find_spec("matplotlib") else None)


# -- pictures --------------------------------------------------------------------------------------------------


def _bars(found: list[dict[str, Any]]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 4.0), layout="constrained")
    axis = figure.subplots()
    names = [f"r = {each['r']}" for each in found]
    axis.bar(names, [each["throughput a processor second, of r = 0"] for each in found], width=0.5)
    axis.set_ylabel("tuples a processor second, of r = 0")
    axis.set_title("What a copy costs (SMR, Figure 5)")
    return figure


def _shares(found: list[dict[str, Any]]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 4.0), layout="constrained")
    axis = figure.subplots()
    intervals = [each["interval, s"] for each in found]
    axis.plot(intervals, [each["keys of the state, %"] for each in found], marker="o")
    axis.set_xlabel("interval of checkpoints, s")
    axis.set_ylabel("keys in a checkpoint, % of the state")
    axis.set_ylim(bottom=0)
    axis.set_title("Sizes of incremental checkpoints (SMR, Figure 7)")
    return figure


def _recoveries(found: list[dict[str, Any]]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 4.0), layout="constrained")
    axis = figure.subplots()
    counts = [str(each["killed at once"]) for each in found]
    axis.bar(counts, [each["all results, s"] for each in found], width=0.5, label="all results are there")
    axis.plot(counts, [each["taken over, s"] for each in found], "o", color="black", label="taken over")
    axis.set_xlabel("nodes that are killed at once")
    axis.set_ylabel("seconds")
    axis.set_title("Recovery from several failures (SMR, Figure 8b)")
    axis.legend(fontsize="small")
    return figure


def _takeover(seen: Mapping[str, list[tuple[float, int, int]]], killed_s: float) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 5.5), layout="constrained")
    rates, backups = figure.subplots(2, 1, sharex=True)
    for node, points in sorted(seen.items()):
        times = [at for at, _, _ in points]
        window = 4
        rate = [
            (later[1] - earlier[1]) / (later[0] - earlier[0])
            for earlier, later in zip(points, points[window:], strict=False)
        ]
        rates.plot(times[window:], rate, label=node, linewidth=1.2)
        backups.plot(times, [size / 1024 for _, _, size in points], label=node, linewidth=1.2)
    for axis in (rates, backups):
        axis.axvline(killed_s, color="grey", linestyle="--", linewidth=0.8)
    rates.set_ylabel("tuples a second")
    rates.set_title("One of three reducers is killed (SMR, Figure 8a)")
    rates.legend(fontsize="small")
    backups.set_ylabel("tuples kept for others, KiB")
    backups.set_xlabel("seconds")
    return figure
