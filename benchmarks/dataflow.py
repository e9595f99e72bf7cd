"""Measure dataflows on local processes: throughput of a node, latency over three, recovery from SIGKILL.

- *Throughput*: filter, key by a string, count and sum by windows of ten seconds, on one node, from rows in memory
  to rows at the sink. The techniques take turns: none (amnesia), precise upstream backup, SGuard with a checkpoint
  each second in a directory and in peacefs (three datanodes on this machine), CEC with its log in a directory,
  standbys.
- *Latency*: filter, windows of ten rows by key, filter, each on its own node, at half of the query's maximum rate
  with batches of 2,048 rows: the time from when a row is offered until the window that it completes is at the
  sink.
- *Recovery*: the node of a unit that keeps counts by key is killed with SIGKILL. Times from the kill until it is
  noticed, the state is loaded, the unit has caught up, and the next row is at the sink.
"""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.hosts import run_events
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints, UnitCheckpoints
from peacefs.dataflow.hosts.edge_run import EdgeRun, RunOptions
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.hosts.peace_checkpoints import PeaceCheckpoints
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

_ROWS = 65_536
_SMALL_ROWS = 2048
_SCHEMA = pa.schema([("key", pa.string()), ("at", TIME), ("ok", pa.bool_()), ("value", pa.int64())])
_PATIENT_S = 20.0


def main(*, quick: bool = False) -> None:
    warm()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with LocalCluster(directory / "cluster", datanodes=3, port=0) as cluster:
            _throughput(directory, cluster.http_address, batches=60 if quick else 300, rounds=1 if quick else 3)
        _latency(directory, seconds=4.0 if quick else 20.0)
        _recovery(directory, [10_000] if quick else [10_000, 1_000_000])


# -- throughput --------------------------------------------------------------------------------------------


def counting() -> Network:
    query = Query("counting")
    windows = query.source("in", _SCHEMA, time="at").filter(F.col("ok")).key_by("key").window("10s")
    windows.aggregate(F.count(), F.sum("value")).sink("out")
    return query.network()


def key_rows(keys: int, batches: int, *, chance: int = 1) -> list[pa.RecordBatch]:
    """Return batches of a tenth of a second each. Nine of ten rows pass the filter."""
    random = np.random.default_rng(chance)
    names = pa.array([f"host-{number:07}.example.org" for number in range(keys)])
    made = []
    for batch in range(min(batches, 30)):
        at = np.sort(random.integers(0, 100_000, _ROWS)) + batch * 100_000
        arrays = [
            names.take(pa.array(random.integers(0, keys, _ROWS))),
            pa.array(at).cast(TIME),
            pa.array(random.random(_ROWS) < 0.9),
            pa.array(random.integers(0, 1000, _ROWS)),
        ]
        made.append(pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA))
    return made


def repeated(made: list[pa.RecordBatch], batches: int) -> Iterator[pa.RecordBatch]:
    for number in range(batches):
        rows = made[number % len(made)]
        later = number // len(made) * len(made) * 100_000
        at = pa.compute.add(rows.column("at").cast(pa.int64()), later).cast(TIME)
        yield rows.set_column(1, "at", at)


def _throughput(directory: Path, coordinator: str, *, batches: int, rounds: int) -> None:
    found: list[dict[str, Any]] = []
    for keys in (1000, 100_000):
        made = key_rows(keys, batches)
        speeds: dict[str, list[float]] = {}
        seen: dict[str, list[run_events.CheckpointTaken]] = {}
        for turn in range(rounds):
            for name, technique in (
                ("amnesia", Amnesia()),
                ("upstream backup", UpstreamBackup(precise=True)),
                ("SGuard, directory", SGuard(interval_s=1.0)),
                ("SGuard, peacefs", SGuard(interval_s=1.0)),
                ("CEC, directory", CEC()),
                ("active standby, two nodes", ActiveStandby()),
                ("passive standby, two nodes", PassiveStandby()),
            ):
                path = f"throughput-{keys}-{turn}-{name.replace(' ', '-')}"
                store: UnitCheckpoints = DirectoryCheckpoints(directory / path)
                if name.endswith("peacefs"):
                    store = PeaceCheckpoints(coordinator, f"/{path}")
                taken = seen.setdefault(name, [])
                found_speed = speed(counting(), technique, store, repeated(made, batches), taken)
                speeds.setdefault(name, []).append(found_speed)
                store.close()
        best = statistics.median(speeds["amnesia"])
        for name, each in speeds.items():
            pauses = [taken.cost.pause_us / 1000 for taken in seen[name]]
            found.append(
                {
                    "keys": keys,
                    "recovery": name,
                    "tuples/s": statistics.median(each),
                    "of amnesia": statistics.median(each) / best,
                    "checkpoints": len(pauses),
                    "pause, median ms": statistics.median(pauses) if pauses else 0.0,
                    "pause, longest ms": max(pauses, default=0.0),
                }
            )
    show("dataflow_throughput", "One node: filter, key by string, count and sum by window", found)


def speed(
    network: Network,
    technique: Technique,
    store: UnitCheckpoints,
    rows: Iterator[pa.RecordBatch],
    taken: list[run_events.CheckpointTaken],
) -> float:
    """Return rows per second, from the first row offered to a ready node until the last row of the output."""
    begun: list[float] = []
    count = 0
    placed = threading.Event()

    def feed() -> Iterator[pa.RecordBatch]:
        nonlocal count
        placed.wait()
        begun.append(time.perf_counter())
        for batch in rows:
            count += batch.num_rows
            yield batch

    def observe(_: float, event: run_events.RunEvent) -> None:
        match event:
            case run_events.UnitsPlaced():
                placed.set()
            case run_events.CheckpointTaken():
                taken.append(event)

    nodes = technique.nodes_min
    host = LocalProcesses(nodes, store, node_timeout_s=_PATIENT_S)
    options = RunOptions(observer=observe)
    with host.start(network, technique, {"in": feed()}, {"out": lambda _: None}, options) as run:
        run.wait()
        return count / (time.perf_counter() - begun[0])


# -- latency ----------------------------------------------------------------------------------------------------


def _three_units() -> Network:
    query = Query("three")
    stream = query.source("in", _SCHEMA, time="at").filter(F.col("ok"))
    windows = stream.unit("windows").key_by("key").count_window(10).aggregate(F.count(), F.sum("value"))
    windows.unit("last").filter(F.col("count") == 10).sink("out")
    return query.network()


def _latency(directory: Path, *, seconds: float) -> None:
    made = key_rows(1000, 30)
    small = (
        batch.slice(first, _SMALL_ROWS) for batch in repeated(made, 15) for first in range(0, _ROWS, _SMALL_ROWS)
    )
    full = speed(_three_units(), Amnesia(), DirectoryCheckpoints(directory / "full"), small, [])
    found = []
    for name, technique in (
        ("amnesia", Amnesia()),
        ("upstream backup", UpstreamBackup()),
        ("SGuard", SGuard(interval_s=1.0)),
    ):
        late = latencies(DirectoryCheckpoints(directory / name), technique, made[0], full / 2, seconds)
        found.append(
            {
                "recovery": name,
                "tuples/s": full / 2,
                "windows": len(late),
                "p50 ms": _share(late, 0.5),
                "p99 ms": _share(late, 0.99),
                "worst ms": late[-1],
            }
        )
    show("dataflow_latency", f"Three nodes at half load ({full:,.0f} tuples/s at full)", found)


def latencies(
    store: UnitCheckpoints, technique: Technique, rows: pa.RecordBatch, rate: float, seconds: float
) -> list[float]:
    """Return the sorted latencies of windows in ms. Rows are offered a hundred times a second."""
    placed = threading.Event()
    late: list[float] = []
    size = max(int(rate / 100), 1)

    def feed() -> Iterator[pa.RecordBatch]:
        placed.wait()
        begun = time.monotonic()
        for number in range(int(seconds * 100)):
            time.sleep(max(begun + number / 100 - time.monotonic(), 0))
            part = rows.slice(number * size % max(_ROWS - size, 1), size)
            now_us = int(time.monotonic() * 1_000_000)
            yield part.set_column(1, "at", pa.array(np.full(part.num_rows, now_us)).cast(TIME))

    def take(batch: pa.RecordBatch) -> None:
        now_us = time.monotonic() * 1_000_000
        late.extend((now_us - batch.column("at").cast(pa.int64()).to_numpy()) / 1000)

    def observe(_: float, event: run_events.RunEvent) -> None:
        if isinstance(event, run_events.UnitsPlaced):
            placed.set()

    host = LocalProcesses(3, store, node_timeout_s=_PATIENT_S)
    options = RunOptions(observer=observe)
    with host.start(_three_units(), technique, {"in": feed()}, {"out": take}, options) as run:
        run.wait()
    # The first second opens connections and fills caches.
    return sorted(float(each) for each in late[len(late) // int(seconds) :])


def _share(ordered: list[float], part: float) -> float:
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)]


# -- recovery ---------------------------------------------------------------------------------------------------


@dataclass
class _Killed:
    at_s: float = 0.0
    noticed_s: float = 0.0
    again_s: float = 0.0
    recovered: run_events.RecoveryMeasured | None = None
    taken: list[run_events.CheckpointTaken] = field(default_factory=list)


def _recovery(directory: Path, keys: list[int]) -> None:
    found = []
    for count in keys:
        seen = _kill(directory / f"recovery-{count}", count)
        assert seen.recovered is not None
        found.append(
            {
                "keys": count,
                "pages": max(each.cost.pages_written + each.cost.pages_referred for each in seen.taken),
                "noticed, s": seen.noticed_s - seen.at_s,
                "loaded in, s": seen.recovered.load_s,
                "replayed in, s": seen.recovered.replay_s,
                "output again, s": seen.again_s - seen.at_s,
            }
        )
    show("dataflow_recovery", "SIGKILL of the node of a unit that counts by key, by SGuard", found)


def _kill(directory: Path, keys: int) -> _Killed:
    seen = _Killed()
    stored, done = threading.Event(), threading.Event()
    rows = key_rows(keys, 30)

    def counted(batch: pa.RecordBatch, state: Any) -> pa.RecordBatch:
        state.add_at(batch.column("key"), 1)
        return batch.slice(0, 1)

    query = Query("counts")
    stream = query.source("in", _SCHEMA, time="at").filter(F.col("ok")).unit("counts")
    stream.process(counted, state={"key": "string", "count": "int64"}, key="key", deterministic=False).sink("out")

    def feed() -> Iterator[pa.RecordBatch]:
        # Send all keys first, so that the state has its final size.
        names = pa.array([f"host-{number:07}.example.org" for number in range(keys)])
        for first in range(0, keys, _ROWS):
            part = names.slice(first, _ROWS)
            count = len(part)
            arrays = [part, pa.array(np.zeros(count, np.int64)).cast(TIME), pa.repeat(True, count)]
            yield pa.RecordBatch.from_arrays([*arrays, pa.array(np.ones(count, np.int64))], schema=_SCHEMA)
        while not done.is_set():
            for batch in rows:
                yield batch.slice(0, 4096)
                time.sleep(0.02)

    def take(_: pa.RecordBatch) -> None:
        if seen.noticed_s and seen.recovered is not None and not seen.again_s:
            seen.again_s = time.monotonic()
            done.set()

    def observe(at_s: float, event: run_events.RunEvent) -> None:
        match event:
            case run_events.CheckpointTaken("counts"):
                seen.taken.append(event)
                if len(seen.taken) > 2:
                    stored.set()
            case run_events.NodeLost() if seen.at_s and not seen.noticed_s:
                seen.noticed_s = at_s
            case run_events.RecoveryMeasured("counts"):
                seen.recovered = event

    host = LocalProcesses(3, DirectoryCheckpoints(directory))
    options = RunOptions(observer=observe)
    with host.start(query.network(), SGuard(interval_s=1.0), {"in": feed()}, {"out": take}, options) as run:
        assert isinstance(run, EdgeRun)
        stored.wait()
        node = run.place_of("counts")
        assert node is not None
        seen.at_s = time.monotonic()
        os.kill(host.pids()[node], signal.SIGKILL)
        run.wait()
    return seen
