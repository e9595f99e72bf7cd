"""One client writes one large file, beside a bare chain of sockets and files that does the same fsyncs.

Aim: at least 0.6 of the bare chain. The bare chain without fsync shows what the disk costs in the same run.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster import LocalCluster

from . import bare_chain
from .report import show

_MIB = 1024 * 1024


def main(*, quick: bool = False) -> None:
    total = (128 if quick else 1024) * _MIB
    rounds = 1 if quick else 5
    seconds: dict[tuple[int, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as directory:
        for _ in range(rounds):
            for replicas in (1, 3):
                for who in ("peacefs", "bare chain", "bare chain, no fsync"):
                    taken = _measure(who, total, replicas, Path(directory))
                    seconds.setdefault((replicas, who), []).append(taken)
    rows = []
    for (replicas, who), taken in sorted(seconds.items()):
        bare = seconds[replicas, "bare chain"]
        ratios = [theirs / ours for ours, theirs in zip(taken, bare, strict=True)]
        rows.append(
            {
                "replicas": replicas,
                "who": who,
                "MiB/s, median": total / _MIB / statistics.median(taken),
                "slowest": total / _MIB / max(taken),
                "fastest": total / _MIB / min(taken),
                "of the bare chain, median": statistics.median(ratios),
            }
        )
    show("write_stream", f"One file of {total // _MIB} MiB, {rounds} rounds, alternating", rows)


def _measure(who: str, total: int, replicas: int, directory: Path) -> float:
    if who != "peacefs":
        taken = bare_chain.run(total, replicas, directory, sync=who == "bare chain")
    else:
        with tempfile.TemporaryDirectory(dir=directory) as data:
            taken = _write(total, replicas, Path(data))
    # What one leaves dirty must not be written at the next one's cost.
    os.sync()
    return taken


def _write(total: int, replicas: int, directory: Path) -> float:
    piece = os.urandom(_MIB)
    with LocalCluster(directory, datanodes=3, port=0) as cluster, PeaceFileSystem(cluster.http_address) as files:
        files.write("/warm", b"connections", replication=replicas)
        started = time.monotonic()
        with files.open_for_writing("/stream", replication=replicas) as sink:
            for _ in range(total // _MIB):
                sink.write(piece)
        return time.monotonic() - started
