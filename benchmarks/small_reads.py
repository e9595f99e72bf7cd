"""Open and read files of 1 KiB with 1 to 16 readers, as a restarted query reads its change logs.

Over WebHDFS, as Hadoop's client does: an OPEN on a kept connection, then a GET on a new one. And with our own
client. The files were written just before, so they are in the page cache.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster

from .over_tls import clusters, context_of, with_ratio
from .plain_http import PlainHttp
from .processor_time import cluster_cpu_s
from .report import show

_DATA = os.urandom(1024)
_FILES = 100
_READERS = (1, 4, 16)
#: Reads the file with a number.
Read = Callable[[int], int]


def main(*, quick: bool = False, tls: bool = False) -> None:
    reads, rounds = (50, 1) if quick else (1000, 3)
    fronts = {"WebHDFS": _over_webhdfs, "our client": _over_client}
    rows = []
    with tempfile.TemporaryDirectory() as directory, clusters(Path(directory), 4, tls=tls) as running:
        for cluster in running.values():
            with PeaceFileSystem(cluster.http_address, ca_file=cluster.ca_file) as files:
                for number in range(_FILES):
                    files.write(_path(number), _DATA, replication=3)
        for readers in _READERS:
            runs: dict[str, list[dict[str, float]]] = {f"{front}{way}": [] for front in fronts for way in running}
            for _ in range(rounds):
                for front, maker in fronts.items():
                    for way, cluster in running.items():
                        runs[front + way].append(_run(cluster, maker, readers, reads // readers))
            for front, measured in runs.items():
                middle = sorted(measured, key=lambda run: run["files/s"])[rounds // 2]
                rows.append({"front": front, "readers": readers, **middle})
    shown = with_ratio(rows, "files/s", ("front", "readers")) if tls else rows
    show("small_reads", f"{reads} reads of files of 1 KiB; the median of {rounds} rounds, alternating", shown)


def _path(number: int) -> str:
    return f"/checkpoints/orders/state/0/{number % _FILES}.changelog"


def _run(
    cluster: LocalCluster, maker: Callable[[LocalCluster], Read], readers: int, reads: int
) -> dict[str, float]:
    latencies: list[float] = []
    started = threading.Barrier(readers + 1)

    def work() -> None:
        read = maker(cluster)
        started.wait()
        mine = []
        for number in range(reads):
            begun = time.perf_counter()
            assert read(number) == len(_DATA)
            mine.append(time.perf_counter() - begun)
        latencies.extend(mine)

    threads = [threading.Thread(target=work) for _ in range(readers)]
    for thread in threads:
        thread.start()
    before = cluster_cpu_s(cluster, "readers")
    started.wait()
    begun = time.perf_counter()
    for thread in threads:
        thread.join()
    taken = time.perf_counter() - begun
    after = cluster_cpu_s(cluster, "readers")
    assert len(latencies) == reads * readers, "a reader failed"
    cuts = statistics.quantiles(latencies, n=100)
    return {
        "files/s": len(latencies) / taken,
        "p50 ms": cuts[49] * 1000,
        "p99 ms": cuts[98] * 1000,
        **{f"CPU ms/file: {who}": (after[who] - before[who]) / len(latencies) * 1000 for who in before},
    }


def _over_webhdfs(cluster: LocalCluster) -> Read:
    context = context_of(cluster)
    coordinator = PlainHttp(cluster.address.netloc, context)

    def read(number: int) -> int:
        redirect = coordinator.ask("GET", f"/webhdfs/v1{_path(number)}?op=OPEN&user.name=bench", 307)
        parts = urlsplit(redirect.location)
        datanode = PlainHttp(parts.netloc, context)
        answer = datanode.ask("GET", f"{parts.path}?{parts.query}", 200)
        datanode.close()
        return answer.body_bytes

    return read


def _over_client(cluster: LocalCluster) -> Read:
    files = PeaceFileSystem(cluster.http_address, ca_file=cluster.ca_file)
    return lambda number: len(files.read(_path(number)))
