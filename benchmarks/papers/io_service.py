"""SGuard's Table 8: one client with 1 to 16 threads, and one datanode with 1 to 16 clients; writes and reads.

Per client: the I/O service writes a checkpoint with N workers, to three replicas, and reads it back (from three
datanodes with two readers each, so of more than six workers some wait). The limits are N bare chains
(`bare_chain`), and N connections with `sendfile` at one end (`bare_read`). Per datanode: N clients at once, each
with its own chunk of one datanode, and the same limits.

Results are MB/s; in the rows about a datanode they are per client, as in the paper, whose figures are beside. The
paper's network carried 125 MB/s and each machine had its own disk; here client, datanodes and limits share one
machine: compare shapes, not numbers. Reads come from the page cache, since the data was just written. All sides
take turns.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import bare_chain, bare_read
from benchmarks.report import show
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.io_service import IOService
from peacefs.client.local_cluster.cluster import LocalCluster

_MIB = 1024 * 1024
_PAGE_BYTES = 64 * 1024
#: Per number of threads: client reads and writes, datanode reads and writes (per client), in MB/s.
_PAPER = {
    1: (60.5, 63.7, 42.7, 30.0),
    2: (56.3, 91.3, 6.16, 22.5),
    4: (95.3, 102.0, 3.04, 9.90),
    8: (105.0, 104.0, 1.29, 6.03),
    16: (110.0, 105.0, 0.63, 2.57),
}
#: Seconds of each round, by task and number of concurrent users.
Seconds = dict[tuple[str, int], list[float]]


def main(*, quick: bool = False, gigabytes: float | None = None) -> None:
    """Run the benchmark. `gigabytes` is the size of the checkpoint; the paper's was 1."""
    rounds = 1 if quick else 2
    total = int(gigabytes * 1024) * _MIB if gigabytes is not None else (32 if quick else 256) * _MIB
    chunk = (4 if quick else 16) * _MIB
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        seconds: Seconds = {}
        with LocalCluster(directory / "three", datanodes=3, port=0) as cluster:
            for _ in range(rounds):
                _client(cluster.http_address, total, directory, seconds)
        with LocalCluster(directory / "one", datanodes=1, port=0) as cluster:
            for _ in range(rounds):
                _datanode(cluster.http_address, chunk, directory, seconds)
    title = (
        f"a checkpoint of {total // _MIB} MiB, chunks of {chunk // _MIB} MiB for the datanode; "
        f"{rounds} rounds, alternating"
    )
    show("io_service", title, _rows(seconds, total, chunk))


def _rows(seconds: Seconds, total: int, chunk: int) -> list[dict[str, Any]]:
    rows = []
    for at, (what, size) in enumerate(
        (("client reads", total), ("client writes", total), ("datanode reads", chunk), ("datanode writes", chunk))
    ):
        for count, paper in _PAPER.items():
            ours, limit = seconds[what, count], seconds[f"{what}, limit", count]
            rows.append(
                {
                    "what": what,
                    "at once": count,
                    "MB/s, median": size / 1e6 / statistics.median(ours),
                    "slowest": size / 1e6 / max(ours),
                    "the limit, median": size / 1e6 / statistics.median(limit),
                    "of the limit, median": statistics.median(
                        theirs / our for our, theirs in zip(ours, limit, strict=True)
                    ),
                    "the paper's": paper[at],
                }
            )
    return rows


# -- one client ------------------------------------------------------------------------------------


def _client(address: str, total: int, directory: Path, seconds: Seconds) -> None:
    data = os.urandom(total)
    pages = [memoryview(data)[at : at + _PAGE_BYTES] for at in range(0, total, _PAGE_BYTES)]
    chunk_bytes = max(total // max(_PAPER), _MIB)
    with PeaceFileSystem(address) as files:
        for count in _PAPER:
            service = IOService(files, workers=count, chunk_bytes=chunk_bytes, replication=3)
            taken = _timed(partial(service.write, "bench", 1, pages))
            seconds.setdefault(("client writes", count), []).append(taken)
            # Write dirty pages of one round now, so that they do not slow down the next one.
            os.sync()
            restored, taken = _with_result(partial(service.read, "bench", 1))
            assert restored.pages == pages
            del restored
            seconds.setdefault(("client reads", count), []).append(taken)
            files.delete("/checkpoint/bench-1", recursive=True)
            each = total // count
            taken = _bare_writes(each, count, 3, chunk_bytes, directory)
            seconds.setdefault(("client writes, limit", count), []).append(taken)
            seconds.setdefault(("client reads, limit", count), []).append(_bare_reads(each, count, directory))


# -- one datanode ----------------------------------------------------------------------------------


def _datanode(address: str, chunk: int, directory: Path, seconds: Seconds) -> None:
    data = os.urandom(chunk)
    for count in _PAPER:
        with ExitStack() as stack:
            clients = [stack.enter_context(PeaceFileSystem(address)) for _ in range(count)]
            for number, files in enumerate(clients):
                files.write(f"/warm/{number}", b"connections", overwrite=True, replication=1)

            def write(number: int, clients: list[PeaceFileSystem] = clients) -> None:
                clients[number].write(f"/chunk/{number}", data, overwrite=True, replication=1)

            def read(number: int, clients: list[PeaceFileSystem] = clients) -> None:
                with clients[number].open(f"/chunk/{number}") as source:
                    assert source.read_at(0, chunk) == data

            seconds.setdefault(("datanode writes", count), []).append(_at_once(write, count))
            os.sync()
            seconds.setdefault(("datanode reads", count), []).append(_at_once(read, count))
        taken = _bare_writes(chunk, count, 1, chunk, directory)
        seconds.setdefault(("datanode writes, limit", count), []).append(taken)
        seconds.setdefault(("datanode reads, limit", count), []).append(_bare_reads(chunk, count, directory))


# -- limits, and timing ----------------------------------------------------------------------------


def _bare_writes(each: int, count: int, replicas: int, chunk_bytes: int, directory: Path) -> float:
    start = threading.Barrier(count)

    def chain(_number: int) -> float:
        return bare_chain.run(each, replicas, directory, start=start, chunk_bytes=chunk_bytes)

    with ThreadPoolExecutor(count) as threads:
        taken = max(threads.map(chain, range(count)))
    os.sync()
    return taken


def _bare_reads(each: int, count: int, directory: Path) -> float:
    paths = [directory / f"plain-{number}" for number in range(count)]
    for path in paths:
        path.write_bytes(os.urandom(each))
    with bare_read.serving(paths) as address:
        # By now the server is up, and the files are in the page cache.
        bare_read.read(address, 0)
        return _at_once(lambda number: bare_read.read(address, number), count)


def _at_once(work: Callable[[int], object], count: int) -> float:
    """Return the seconds from when all threads are ready until the last one is done."""
    start = threading.Barrier(count + 1)

    def one(number: int) -> None:
        start.wait()
        work(number)

    with ThreadPoolExecutor(count) as threads:
        running = [threads.submit(one, number) for number in range(count)]
        start.wait()
        began = time.monotonic()
        for each in running:
            each.result()
        return time.monotonic() - began


def _timed(work: Callable[[], object]) -> float:
    return _with_result(work)[1]


def _with_result(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.monotonic()
    result = work()
    return result, time.monotonic() - began
