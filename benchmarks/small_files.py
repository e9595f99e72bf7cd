"""Files of 1 KiB, 1 to 16 writers, r = 3, every one fsynced and committed: what Spark's checkpoints are made of.

The same files by WebHDFS (two HTTP requests each, as the Hadoop client sends them) and by our own client. The
counts are differences of the services' own counters, heartbeats included.
"""

from __future__ import annotations

import contextlib
import getpass
import http.client
import os
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster

from .over_tls import clusters, context_of, http_connection, with_ratio
from .processor_time import cluster_cpu_s
from .report import show

_DATA = os.urandom(1024)
_COUNTED = ("peacefs_http_requests_total", "peacefs_frames_sent_total", "peacefs_commits_made_total")
Write = Callable[[str], None]
_WRITERS = (1, 2, 4, 8, 16)


def main(*, quick: bool = False, tls: bool = False) -> None:
    files_a_writer, rounds = (20, 1) if quick else (250, 3)
    rows = []
    fronts = {"WebHDFS": _over_webhdfs, "our client": over_client}
    with tempfile.TemporaryDirectory() as directory, clusters(Path(directory), 4, tls=tls) as running:
        for writers in _WRITERS:
            runs: dict[str, list[dict[str, float]]] = {f"{front}{way}": [] for front in fronts for way in running}
            for turn in range(rounds):
                for front, maker in fronts.items():
                    for way, cluster in running.items():
                        path = f"/{front}/{writers}/{turn}"
                        runs[front + way].append(write_files(cluster, maker, writers, files_a_writer, path))
            for front, measured in runs.items():
                middle = sorted(measured, key=lambda run: run["files/s"])[rounds // 2]
                rows.append({"front": front, "writers": writers, **middle})
    title = f"{files_a_writer} files of 1 KiB a writer, r = 3, fsync; the median of {rounds} rounds, alternating"
    show("small_files", title, with_ratio(rows, "files/s", ("front", "writers")) if tls else rows)


def write_files(
    cluster: LocalCluster,
    maker: Callable[[LocalCluster], Write],
    writers: int,
    files_a_writer: int,
    directory: str,
) -> dict[str, float]:
    """Write files into a directory with several writers. Return the rate, latencies, and costs per file by
    process.
    """
    latencies: list[float] = []
    before, cpu_before = _counters(cluster), cluster_cpu_s(cluster, "writers")
    started = threading.Barrier(writers + 1)

    def work(writer: int) -> None:
        write = maker(cluster)
        write(f"{directory}/warm-{writer}")
        started.wait()
        mine = []
        for number in range(files_a_writer):
            begun = time.perf_counter()
            write(f"{directory}/{writer}-{number}")
            mine.append(time.perf_counter() - begun)
        latencies.extend(mine)

    threads = [threading.Thread(target=work, args=(writer,)) for writer in range(writers)]
    for thread in threads:
        thread.start()
    started.wait()
    begun = time.perf_counter()
    for thread in threads:
        thread.join()
    taken = time.perf_counter() - begun
    assert len(latencies) == files_a_writer * writers, "a writer failed"
    after, cpu_after = _counters(cluster), cluster_cpu_s(cluster, "writers")
    written = len(latencies) + writers
    cuts = statistics.quantiles(latencies, n=100)
    return {
        "files/s": len(latencies) / taken,
        "p50 ms": cuts[49] * 1000,
        "p99 ms": cuts[98] * 1000,
        **{
            label: (after[name] - before[name]) / written
            for label, name in zip(("HTTP/file", "frames/file", "commits/file"), _COUNTED, strict=True)
        },
        **{f"CPU ms/file: {who}": (cpu_after[who] - cpu_before[who]) / written * 1000 for who in cpu_before},
    }


def _over_webhdfs(cluster: LocalCluster) -> Write:
    connections: dict[str, http.client.HTTPConnection] = {}
    context = context_of(cluster)

    def put(url: str, body: bytes | None) -> http.client.HTTPResponse:
        parts = urlsplit(url)
        connection = connections.setdefault(parts.netloc, http_connection(parts.netloc, context))
        connection.request("PUT", f"{parts.path}?{parts.query}", body=body)
        answer = connection.getresponse()
        answer.read()
        return answer

    def write(path: str) -> None:
        name = urllib.request.pathname2url(path)
        asked = f"op=CREATE&user.name={getpass.getuser()}&replication=3"
        redirect = put(f"{cluster.http_address}/webhdfs/v1{name}?{asked}", None)
        answer = put(redirect.headers["location"], _DATA)
        assert (redirect.status, answer.status) == (307, 201), (redirect.status, answer.status)

    return write


def over_client(cluster: LocalCluster) -> Write:
    files = PeaceFileSystem(cluster.http_address, ca_file=cluster.ca_file)
    return lambda path: files.write(path, _DATA, replication=3)


def _counters(cluster: LocalCluster) -> dict[str, float]:
    """Return sums over all members. The requests for them count, too."""
    totals = dict.fromkeys(_COUNTED, 0.0)
    for member in cluster.members:
        netloc = f"{member.readiness.http_host}:{member.readiness.http_port}"
        with contextlib.closing(http_connection(netloc, context_of(cluster))) as connection:
            connection.request("GET", "/metrics")
            for line in connection.getresponse().read().decode().splitlines():
                name, _, value = line.partition(" ")
                if name in totals:
                    totals[name] += float(value)
    return totals
