"""Nexmark's queries 0 to 5, 7, 8 and 11: rows per second of processor time, of peacefs and of other engines.

All engines get the same events, as Arrow batches in memory. `queries.py` has the queries as
users of peacefs write them, `bytewax_flows.py` as users of Bytewax do. The number of output rows is compared with
DuckDB's answer (`answers.py`); `tests/dataflow/test_nexmark.py` compares the rows themselves.

Processor time is that of all processes: nodes, the program with sources and sink, and of the cluster that
stores the checkpoints. Start-up does not count. Engines take turns, query by query. What was durable:

- *SGuard, peacefs*: all state, each second, on three disks.
- *amnesia*: nothing.
- *Bytewax*: the state that changed, each second, in SQLite on one disk. Missing if it is not installed. It makes a
  Python object of each row; "objects ready" does so before the clock starts.
"""

from __future__ import annotations

import importlib.util
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.processor_time import cluster_cpu_s, cpu_s
from benchmarks.report import show
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.dataflow.hosts import run_events
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints, UnitCheckpoints
from peacefs.dataflow.hosts.edge_run import RunOptions
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.hosts.peace_checkpoints import PeaceCheckpoints
from peacefs.dataflow.recovery.technique import Technique
from peacefs.dataflow.techniques.amnesia import Amnesia
from peacefs.dataflow.techniques.sguard import SGuard
from peacefs.state.warm import warm

from .answers import answer
from .events import Events, events
from .queries import QUERIES, network_of, read_by

_SEED = 2026
_ROWS_A_BATCH = 65_536
_PATIENT_S = 20.0
_PEER_S = 1800


@dataclass(frozen=True)
class Spent:
    seconds: float
    cpu_s: float
    rows_in: int
    rows_out: int


def main(*, quick: bool = False, rows: Sequence[str] = tuple(QUERIES)) -> None:
    """`rows` are queries."""
    warm()
    count, rounds = (200_000, 1) if quick else (2_000_000, 3)
    given = events(count, seed=_SEED)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with LocalCluster(directory / "cluster", datanodes=3, port=0) as cluster:
            contest = _Contest(given, count, directory, cluster)
            show("nexmark", f"Nexmark, {count:,} events", [contest.row(query, rounds) for query in rows])


class _Contest:
    """Runs each query with each engine, in turns."""

    def __init__(self, given: Events, count: int, directory: Path, cluster: LocalCluster) -> None:
        self._given = given
        self._count = count
        self._directory = directory
        self._cluster = cluster
        self._runs = 0
        self._engines: dict[str, Callable[[str], Spent]] = {"SGuard": self._sguard, "amnesia": self._amnesia}
        if importlib.util.find_spec("bytewax") is not None:
            self._engines["Bytewax"] = self._bytewax
            self._engines["Bytewax, objects ready"] = partial(self._bytewax, ready=True)
        else:
            print("Bytewax is missing: install it with pip install bytewax", flush=True)

    def row(self, query: str, rounds: int) -> dict[str, Any]:
        wanted = answer(query, self._given).num_rows
        spent: dict[str, list[Spent]] = {name: [] for name in self._engines}
        for _ in range(rounds):
            for name, run in self._engines.items():
                self._runs += 1
                spent[name].append(run(query))
        row: dict[str, Any] = {"query": query, "rows": spent["SGuard"][0].rows_in, "out": wanted}
        for name, each in spent.items():
            row[f"{name}, rows/s"] = statistics.median(one.rows_in / one.seconds for one in each)
            row[f"{name}, rows/cpu s"] = statistics.median(one.rows_in / one.cpu_s for one in each)
            found = {one.rows_out for one in each}
            if found != {wanted} and (name[:7], query) != ("Bytewax", "q4"):
                # Bytewax's query 4 shows each change of an average.
                raise SystemExit(f"{name} gives {found} rows for {query}, and DuckDB {wanted}")
        for name in (each for each in spent if each.startswith("Bytewax")):
            row[f"SGuard / {name}"] = row["SGuard, rows/cpu s"] / row[f"{name}, rows/cpu s"]
        print(row, flush=True)
        return row

    def _sguard(self, query: str) -> Spent:
        with closing(PeaceCheckpoints(self._cluster.http_address, f"/nexmark-{self._runs}")) as store:
            return self._run(query, SGuard(interval_s=1.0), store)

    def _amnesia(self, query: str) -> Spent:
        return self._run(query, Amnesia(), DirectoryCheckpoints(self._directory / f"nexmark-{self._runs}"))

    def _run(self, query: str, technique: Technique, store: UnitCheckpoints) -> Spent:
        rows = {name: self._given[name].to_batches(max_chunksize=_ROWS_A_BATCH) for name in read_by(query)}
        placed = threading.Event()
        before: dict[str, float] = {}
        lock = threading.Lock()
        rows_out = 0

        def feed(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            placed.wait()
            with lock:
                if not before:
                    before["s"] = time.perf_counter()
                    before["nodes"] = sum(map(cpu_s, host.pids().values()))
                    before["others"] = sum(cluster_cpu_s(self._cluster, "edge").values())
            yield from batches

        def take(batch: pa.RecordBatch) -> None:
            nonlocal rows_out
            rows_out += batch.num_rows

        def observe(_: float, event: run_events.RunEvent) -> None:
            if isinstance(event, run_events.UnitsPlaced):
                placed.set()

        host = LocalProcesses(technique.nodes_min, store, node_timeout_s=_PATIENT_S)
        of_ended = _ended_cpu_s()
        sources = {name: feed(batches) for name, batches in rows.items()}
        options = RunOptions(observer=observe)
        with host.start(network_of(query, self._given), technique, sources, {"out": take}, options) as run:
            run.wait()
            seconds = time.perf_counter() - before["s"]
            others = sum(cluster_cpu_s(self._cluster, "edge").values()) - before["others"]
        nodes = _ended_cpu_s() - of_ended - before["nodes"]
        rows_in = sum(batch.num_rows for batches in rows.values() for batch in batches)
        return Spent(seconds, others + nodes, rows_in, rows_out)

    def _bytewax(self, query: str, *, ready: bool = False) -> Spent:
        directory = self._directory / f"bytewax-{self._runs}"
        directory.mkdir()
        options = ["--ready"] if ready else []
        command = [sys.executable, "-m", f"{__name__}.bytewax_flows", query, str(self._count), str(_SEED)]
        done = subprocess.run(
            [*command, str(directory), *options], stdout=subprocess.PIPE, timeout=_PEER_S, check=True
        )
        found = json.loads(done.stdout.splitlines()[-1])
        return Spent(found["s"], found["cpu s"], found["in"], found["out"])


def _ended_cpu_s() -> float:
    """Return the processor time, in seconds, of all child processes that have ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime
