"""One to 16 writers, a large file each, beside bare chains of sockets and files with the same fsyncs.

Aim: at least 0.6 of the bare chain. The bare chain without fsync shows what the disk costs in the same run. The
writers are threads of one client. With more writers, the files are shorter.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster

from . import bare_chain
from .over_tls import TLS
from .report import show

_MIB = 1024 * 1024
#: Replicas and writers.
_SHAPES = ((1, 1), (3, 1), (3, 2), (3, 4), (3, 8), (3, 16))


def main(*, quick: bool = False, tls: bool = False) -> None:
    total = (128 if quick else 1024) * _MIB
    rounds = 1 if quick else 3
    seconds: dict[tuple[int, int, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as directory:
        for _ in range(rounds):
            for replicas, writers in _SHAPES:
                sides = ("peacefs", "bare chain", "bare chain, no fsync")[: 3 if writers == 1 else 2]
                for who in (*sides, f"peacefs{TLS}") if tls else sides:
                    took_s = _measure(who, total, replicas, writers, Path(directory))
                    seconds.setdefault((replicas, writers, who), []).append(took_s)
    rows = []
    for (replicas, writers, who), taken in sorted(seconds.items()):
        bare = seconds[replicas, writers, "bare chain"]
        ratios = [theirs / ours for ours, theirs in zip(taken, bare, strict=True)]
        plain = seconds[replicas, writers, "peacefs"]
        of_plain = [theirs / ours for ours, theirs in zip(taken, plain, strict=True)]
        rows.append(
            {
                "replicas": replicas,
                "writers": writers,
                "who": who,
                "MiB/s, median": total / _MIB / statistics.median(taken),
                "slowest": total / _MIB / max(taken),
                "fastest": total / _MIB / min(taken),
                "of the bare chain, median": statistics.median(ratios),
                **({"of plain, median": statistics.median(of_plain)} if tls else {}),
            }
        )
    show("write_stream", f"{total // _MIB} MiB in all, {rounds} rounds, alternating", rows)


def _measure(who: str, total: int, replicas: int, writers: int, directory: Path) -> float:
    if not who.startswith("peacefs"):
        sync = who == "bare chain"
        with ThreadPoolExecutor(writers) as threads:
            start = threading.Barrier(writers)
            chain = partial(bare_chain.run, total // writers, replicas, directory, sync=sync, start=start)
            taken = max(run.result() for run in [threads.submit(chain) for _ in range(writers)])
    else:
        with tempfile.TemporaryDirectory(dir=directory) as data:
            taken = _write(total, replicas, writers, Path(data), tls=who.endswith(TLS))
    # Write dirty pages of one round now, so that they do not slow down the next one.
    os.sync()
    return taken


def _write(total: int, replicas: int, writers: int, directory: Path, *, tls: bool) -> float:
    piece = os.urandom(_MIB)
    with (
        LocalCluster(directory, datanodes=3, port=0, tls=tls) as cluster,
        PeaceFileSystem(cluster.http_address, ca_file=cluster.ca_file) as files,
        ThreadPoolExecutor(writers) as threads,
    ):
        files.write("/warm", b"connections", replication=replicas)

        def write(number: int) -> None:
            with files.open_for_writing(f"/stream/{number}", replication=replicas) as sink:
                for _ in range(total // writers // _MIB):
                    sink.write(piece)

        started = time.monotonic()
        for written in [threads.submit(write, number) for number in range(writers)]:
            written.result()
        return time.monotonic() - started
