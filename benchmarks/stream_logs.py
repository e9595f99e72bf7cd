"""Stream logs: appends of 1 KB over 16 streams, committed together on three replicas, and their replay.

Goals: 5,000 appends per second, and a replay at 0.7 of the rate of a plain read of the same bytes. A source offers
appends by the clock, at 5,000 per second and as fast as it can; the writer repeatedly commits what has arrived.
The latency of an append is the time from when it was due until its commit was durable. Replays read what was just
written, one stream after another, with records as the commits made them, of 64 KiB, and of 1 MiB. Each is compared
with `read_at` of the same files, 8 MiB at a time. Client, coordinator and three datanodes run on one machine.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.dataflow.logs.log_reader import LogReader
from peacefs.dataflow.logs.peace_segments import PeaceSegments
from peacefs.dataflow.logs.stream_log import StreamLog, StreamLogs
from peacefs.dataflow.model.batches import Batch
from peacefs.dataflow.model.stream_type import TIME, StreamType
from peacefs.protocol.limits import MIB

from .report import show

_STREAMS = 16
_WANTED_PER_S = 5000
#: Rows of 8 + 8 + 112 bytes.
_ROWS_PER_APPEND = 8
_TEXT_BYTES = 104
#: The file system is read in pieces of this size.
_READ_BYTES = 8 * MIB
_KIND = StreamType(pa.schema([("at", TIME), ("number", pa.int64()), ("text", pa.binary(_TEXT_BYTES))]), "at")


def main(*, quick: bool = False) -> None:
    seconds = 2.0 if quick else 15.0
    mebibytes = 16 if quick else 256
    rounds = 1 if quick else 3
    with (
        tempfile.TemporaryDirectory() as name,
        LocalCluster(Path(name), datanodes=3, port=0) as cluster,
        PeaceFileSystem(cluster.http_address) as files,
    ):
        rows = [
            _appends(files, "paced", seconds, _WANTED_PER_S),
            _appends(files, "flat-out", seconds, None),
        ]
        show("stream_logs_append", f"{_STREAMS} streams, 1 KB an append, three replicas, {seconds:g} s each", rows)
        replays = []
        for title, batch_rows in (("appends of 1 KB", 8), ("records of 64 KiB", 512), ("records of 1 MiB", 8192)):
            place = f"/replay-{batch_rows}"
            _fill(files, place, mebibytes, batch_rows)
            replays.append(_replay(files, place, title, rounds))
        show("stream_logs_replay", f"replay of {mebibytes} MiB, the best of {rounds} rounds", replays)


def _rows(count: int) -> pa.RecordBatch:
    columns = [
        pa.array(np.arange(count), pa.int64()).cast(TIME),
        pa.array(np.arange(count), pa.int64()),
        pa.array([os.urandom(_TEXT_BYTES) for _ in range(count)], pa.binary(_TEXT_BYTES)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_KIND.schema)


# -- appends ----------------------------------------------------------------------------------------------


def _appends(files: PeaceFileSystem, name: str, seconds: float, wanted_per_s: int | None) -> dict[str, Any]:
    rows = _rows(_ROWS_PER_APPEND)
    latencies_ms: list[float] = []
    commits = appended = 0
    with PeaceSegments(files, f"/append-{name}") as store:
        logs = StreamLogs(store)
        opened = [logs.open(f"stream-{number}", _KIND) for number in range(_STREAMS)]
        _append(opened, rows, 0, _STREAMS)
        logs.commit()
        begun = time.perf_counter()
        while (now := time.perf_counter()) - begun < seconds:
            due = int((now - begun) * wanted_per_s) if wanted_per_s else appended + 64 * _STREAMS
            if due == appended:
                time.sleep(0.0005)
                continue
            _append(opened, rows, appended, due)
            logs.commit()
            done = time.perf_counter()
            if wanted_per_s:
                latencies_ms += [(done - begun - at / wanted_per_s) * 1000 for at in range(appended, due)]
            appended, commits = due, commits + 1
        took_s = time.perf_counter() - begun
    return {
        "source": f"{wanted_per_s} a second" if wanted_per_s else "as fast as it goes",
        "appends/s": appended / took_s,
        "MB/s": appended * rows.nbytes / took_s / 1e6,
        "appends a commit": appended / commits,
        "commits/s": commits / took_s,
        "p50 ms": statistics.median(latencies_ms) if latencies_ms else float("nan"),
        "p99 ms": float(np.percentile(latencies_ms, 99)) if latencies_ms else float("nan"),
        "worst ms": max(latencies_ms, default=float("nan")),
        "budget appends/s": _WANTED_PER_S,
    }


def _append(opened: list[StreamLog], rows: pa.RecordBatch, begin: int, end: int) -> None:
    for number in range(begin, end):
        log = opened[number % len(opened)]
        log.append(Batch(log.last + 1, rows))


# -- replay -----------------------------------------------------------------------------------------------


def _fill(files: PeaceFileSystem, place: str, mebibytes: int, batch_rows: int) -> None:
    """Write 16 streams as a source of 5,000 appends per second does, with about 100 commits per second."""
    rows = _rows(batch_rows)
    wanted = (mebibytes << 20) // rows.nbytes
    per_commit = max(_WANTED_PER_S * _ROWS_PER_APPEND // batch_rows // 20, 1)
    with PeaceSegments(files, place) as store:
        logs = StreamLogs(store)
        opened = [logs.open(f"stream-{number}", _KIND) for number in range(_STREAMS)]
        # Use larger batches for larger records.
        for begin in range(0, wanted, per_commit * 4):
            _append(opened, rows, begin, min(begin + per_commit * 4, wanted))
            logs.commit()


def _replay(files: PeaceFileSystem, place: str, title: str, rounds: int) -> dict[str, Any]:
    """Replay, in turns with the file system."""
    with PeaceSegments(files, place) as store:
        sizes = {name: store.segments(name) for name in store.streams()}
        total = sum(length for segments in sizes.values() for _, length in segments)

        def replay() -> int:
            return sum(batch.rows.num_rows for name in sizes for batch in LogReader(store, name).read())

        def read() -> int:
            found = 0
            for name, segments in sizes.items():
                for segment, length in segments:
                    with files.open(f"{place}/{name}/{segment:020}.log") as source:
                        for at in range(0, length, _READ_BYTES):
                            found += len(source.read_at(at, min(_READ_BYTES, length - at)))
            assert found == total
            return found

        replays, reads = [], []
        rows = 0
        for _ in range(rounds):
            seconds, rows = _timed(replay)
            replays.append(seconds)
            reads.append(_timed(read)[0])
    mib = total / 2**20
    return {
        "records": title,
        "MiB": mib,
        "rows/s": rows / min(replays),
        "replay MiB/s": mib / min(replays),
        "read MiB/s": mib / min(reads),
        "ratio": min(reads) / min(replays),
        "budget": 0.7,
    }


def _timed(run: Callable[[], int]) -> tuple[float, int]:
    begun = time.perf_counter()
    found = run()
    return time.perf_counter() - begun, found
