"""Flux's Figure 8: rows per second of producers while a node is killed and its halves are restored.

Session ends with a user are partitioned by session, stamped with a duration, and sent by user to a second stage,
which keeps the longest duration of each user. There are four nodes in a chain and a standby node; the fourth is
killed. The first stage is restored some seconds later, the second stage after as many seconds more. The picture
shows the rows that halves of the first stage send to the second: of the half that dies, of the half that loses its
partner, of an unaffected half, and of the halves on the standby node. The output is compared with the expected
output.
"""

from __future__ import annotations

import itertools
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.dataflows.row_counts import RowCounts
from benchmarks.report import show
from benchmarks.state_pictures import draw
from peacefs.dataflow import Query
from peacefs.dataflow.hosts import run_events
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints
from peacefs.dataflow.hosts.edge_run import RunOptions
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.model.stream_type import TIME
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.techniques.flux import Flux
from peacefs.state.warm import warm

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PARTS = 4
_USERS = 10_000
_BATCH_ROWS = 1000
#: Rows of every nth user are output.
_SHOWN = 128
_EVERY_S = 0.5
_VICTIM = "node-4"
_SCHEMA = pa.schema([("at", TIME), ("session", pa.int64()), ("user", pa.int64())])
_DURATIONS = {"at": "timestamp", "user": "int64", "duration": "int64"}
#: Halves of partitions of the first stage, by what happens to them: node and partition.
_DRAWN = {
    "dead": (_VICTIM, 3),
    "loaded, loses its other half": ("node-3", 2),
    "replicated, loses nothing": ("node-1", 0),
    "standby": ("node-5", 3),
}
_Line = list[tuple[float, float]]


def main(*, quick: bool = False) -> None:
    warm()
    wait_s = 4.0 if quick else 10.0
    lines, events, right = observe(wait_s, seconds=5 * wait_s, rate=4_000 if quick else 8_000)
    marks = {"killed": wait_s} | {f"{unit} whole": at_s for at_s, unit in events}
    rows = []
    for name, line in lines.items():
        for phase, first, last in _phases(wait_s, events):
            rates = [rate for at_s, rate in line if first < at_s <= last]
            rows.append(
                {
                    "half": name,
                    "phase": phase,
                    "rows/s": np.mean(rates) if rates else 0.0,
                    "least in half a second": min(rates, default=0.0),
                }
            )
    rows.append({"half": "output", "phase": "all rows, each once", "rows/s": float("nan"), "right": right})
    show("flux_figure8", f"Flux, Figure 8: {_VICTIM} killed at {wait_s:g} s; rows sent by halves", rows)
    draw("flux_figure8", _figure(lines, marks) if find_spec("matplotlib") else None)


def observe(wait_s: float, *, seconds: float, rate: int) -> tuple[dict[str, _Line], list[tuple[float, str]], bool]:
    """Run the query and kill a node. Return rates, times when pairs were complete again, and whether rows are
    right.
    """
    placed, begun = threading.Event(), [0.0]
    fed: list[pa.RecordBatch] = []
    out: list[pa.RecordBatch] = []
    whole: list[tuple[float, str]] = []

    def feed() -> Iterator[pa.RecordBatch]:
        placed.wait()
        begun[0] = time.monotonic()
        for number in range(int(seconds * rate / _BATCH_ROWS)):
            time.sleep(max(begun[0] + number * _BATCH_ROWS / rate - time.monotonic(), 0))
            fed.append(_session_ends(number))
            yield fed[-1]

    def watch(at_s: float, event: run_events.RunEvent) -> None:
        if isinstance(event, run_events.UnitsPlaced):
            placed.set()
        elif isinstance(event, run_events.PairComplete):
            whole.append((at_s - begun[0], event.unit))

    samples: list[tuple[float, dict[tuple[str, str], int]]] = []
    with tempfile.TemporaryDirectory() as name:
        counts = RowCounts(Path(name, "rows"))
        host = LocalProcesses(5, DirectoryCheckpoints(Path(name, "checkpoints")), node_timeout_s=60.0)
        options = RunOptions(observer=watch, row_counts=counts)
        technique = Flux(standby_nodes=1, catch_up_after_s=wait_s)
        network = sessions()
        with host.start(network, technique, {"ends": feed()}, {"out": out.append}, options) as run:
            placed.wait()
            killed, ended = False, False
            while not ended:
                time.sleep(_EVERY_S)
                now_s = time.monotonic() - begun[0]
                samples.append((now_s, dict(counts.total())))
                if not killed and now_s >= wait_s:
                    os.kill(host.pids()[_VICTIM], signal.SIGKILL)
                    killed = True
                ended = now_s > seconds
            run.wait(300)
    return _rates(samples), whole, _expected(fed) == sorted(_found(out))


def sessions() -> Network:
    query = Query("sessions")
    ends = query.source("ends", _SCHEMA, time="at").partition("session", parts=_PARTS, name="durations")
    stamped = ends.process(_stamp, _DURATIONS, state={"at": "int64", "last": "int64"}, key="at")
    users = stamped.partition("user", parts=_PARTS, name="users")
    users.process(_longest, _DURATIONS, state={"user": "int64", "longest": "int64"}, key="user").sink("out")
    return query.network()


def _stamp(rows: pa.RecordBatch, state: Any) -> pa.RecordBatch:
    """Add a duration to each row, drop the session, and keep 100 KB of state."""
    sessions = rows.column("session").to_numpy()
    durations = (sessions * 7919) % 3600
    state.aggregate(sessions % 6000, {"last": ("put", durations)})
    return pa.RecordBatch.from_arrays(
        [rows.column("at"), rows.column("user"), pa.array(durations)], ["at", "user", "duration"]
    )


def _longest(rows: pa.RecordBatch, state: Any) -> pa.RecordBatch:
    """Keep the longest duration of each user, and pass on the rows of some users."""
    state.aggregate(rows.column("user").to_numpy(), {"longest": ("max", rows.column("duration").to_numpy())})
    return rows.filter(pa.array(rows.column("user").to_numpy() % _SHOWN == 0))


def _session_ends(number: int) -> pa.RecordBatch:
    """Return the rows of a batch. Their times are their numbers, so all rows differ."""
    chance = np.random.default_rng(number)
    first = number * _BATCH_ROWS
    numbers = np.arange(first, first + _BATCH_ROWS)
    arrays = [
        pa.array(numbers).cast(TIME),
        pa.array(numbers),
        pa.array(chance.integers(0, _USERS, _BATCH_ROWS)),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _expected(fed: list[pa.RecordBatch]) -> list[tuple[int, int, int]]:
    ends = pa.Table.from_batches(fed)
    sessions, users = ends.column("session").to_numpy(), ends.column("user").to_numpy()
    shown = users % _SHOWN == 0
    return list(zip(sessions[shown], users[shown], sessions[shown] * 7919 % 3600, strict=True))


def _found(out: list[pa.RecordBatch]) -> list[tuple[int, int, int]]:
    rows = pa.Table.from_batches(out)
    return list(zip(*(rows.column(at).cast(pa.int64()).to_numpy() for at in range(3)), strict=True))


def _rates(samples: list[tuple[float, dict[tuple[str, str], int]]]) -> dict[str, _Line]:
    """Return rows per second of each half, from counts of the streams that it sends."""
    lines: dict[str, _Line] = {name: [] for name in _DRAWN}
    for (before_s, before), (now_s, now) in itertools.pairwise(samples):
        for name, (node, part) in _DRAWN.items():
            sent = sum(
                rows - before.get((sender, stream), 0)
                for (sender, stream), rows in now.items()
                if sender == node and stream.startswith(f"partition-2[{part}] to")
            )
            lines[name].append((now_s, sent / (now_s - before_s)))
    return lines


def _phases(wait_s: float, events: list[tuple[float, str]]) -> list[tuple[str, float, float]]:
    """Return the phases of the run: name, begin and end."""
    first = max((at_s for at_s, unit in events if unit.startswith("durations")), default=float("nan"))
    second = max((at_s for at_s, unit in events if unit.startswith("users")), default=float("nan"))
    return [
        ("before", wait_s / 2, wait_s),
        ("after the kill", wait_s, 2 * wait_s),
        ("first stage whole", first, 3 * wait_s),
        ("second stage whole", second, 5 * wait_s),
    ]


def _figure(lines: dict[str, _Line], marks: dict[str, float]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 4.5), layout="constrained")
    axis = figure.subplots()
    for name, line in lines.items():
        seconds, rates = zip(*line, strict=True)
        axis.plot(seconds, rates, label=name, linewidth=1.0)
    for name, at_s in marks.items():
        axis.axvline(at_s, color="black", linewidth=0.7, linestyle="--")
        axis.text(at_s, axis.get_ylim()[1], f" {name}", rotation=90, va="top", fontsize="x-small")
    axis.set_title("Flux: rows sent by halves of the first stage")
    axis.set_xlabel("seconds")
    axis.set_ylabel("rows a second")
    axis.legend(fontsize="small")
    return figure
