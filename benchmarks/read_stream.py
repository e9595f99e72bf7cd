"""Read large files whole, one and 16 at once, with our client and over WebHDFS (httpx), beside two limits.

Our client reads in two ways: short-circuit, as on a datanode's host, and over TCP, as from another host.

Cold: none of the data is in the page cache (POSIX_FADV_DONTNEED on every file of the cluster and of the peers);
the limit is `cat` of the same bytes, one process per file. Warm: all data is in the page cache; the limit is
`sendfile` and `recv_into` over loopback. Aim: our client at 0.7 of each. All sides take turns within each round.
The 16 readers of a side are threads of one process. Bare sockets are measured in both states, also with checksums
computed at the receiving end: this is the limit for a reader that verifies.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.runtime.tls import TlsFiles, TlsIdentity

from . import bare_read
from .over_tls import TLS, clusters
from .report import show

_MIB = 1024 * 1024
_READERS = (1, 16)
_REPLICAS = (3, 1)
_FRONTS = ("our client", "our client, TCP", "WebHDFS")
#: Reads a given file to its end; returns the number of bytes.
Read = Callable[[str], int]


def main(*, quick: bool = False, tls: bool = False) -> None:
    total = (64 if quick else 512) * _MIB
    rounds = 1 if quick else 5
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with clusters(directory, 3, tls=tls) as running:
            for cluster in running.values():
                _write(cluster, directory, total)
            rows = []
            for state in ("cold", "warm"):
                for readers in _READERS:
                    rows += _compare(running, directory, state, readers, total, rounds)
    shown = _with_ratio(rows) if tls else rows
    show("read_stream", f"{total // _MIB} MiB read in all, {rounds} rounds, alternating", shown)


def _with_ratio(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the ratio of each row over TLS to the same row in plain text."""
    medians = {(row["state"], row["files"], row["who"]): row["MiB/s, median"] for row in rows}
    return [
        row
        | {
            "of plain": row["MiB/s, median"] / medians[row["state"], row["files"], row["who"].removesuffix(TLS)],
        }
        for row in rows
    ]


def _write(cluster: LocalCluster, directory: Path, total: int) -> None:
    """Make files with the same content: in the cluster, with each replication, and plain ones."""
    piece = os.urandom(_MIB)
    with PeaceFileSystem(cluster.http_address, ca_file=cluster.ca_file) as files:
        for readers in _READERS:
            for number in range(readers):
                _fill(directory / f"{readers}-{number}", piece, total // readers)
                for replicas in _REPLICAS:
                    with files.open_for_writing(f"/{replicas}/{readers}-{number}", replication=replicas) as sink:
                        for _ in range(total // readers // _MIB):
                            sink.write(piece)
    os.sync()


def _fill(path: Path, piece: bytes, length: int) -> None:
    with path.open("wb") as target:
        for _ in range(length // _MIB):
            target.write(piece)


def _compare(
    running: dict[str, LocalCluster], directory: Path, state: str, readers: int, total: int, rounds: int
) -> list[dict[str, Any]]:
    limit = "cat" if state == "cold" else "sendfile, recv_into"
    sides: dict[str, Callable[[], float]] = {
        "cat": lambda: _cat(directory, readers),
        "sendfile, recv_into": lambda: _bare(directory, readers, verify=False),
        "the same, and CRC32C": lambda: _bare(directory, readers, verify=True),
    }
    if state == "warm":
        del sides["cat"]
    for replicas in _REPLICAS:
        names = [f"/{replicas}/{readers}-{number}" for number in range(readers)]
        for front in _FRONTS:
            for way, cluster in running.items():
                side = f"{front}, r = {replicas}{way}"
                sides[side] = partial(_in_a_process, front, cluster.http_address, cluster.ca_file, names)
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(rounds + (state == "warm")):
        for side, run in sides.items():
            if state == "cold":
                _forget(directory)
            taken = run()
            # The first warm round loads all data into the page cache.
            if state == "cold" or turn:
                seconds[side].append(taken)
    return [
        {
            "state": state,
            "files": readers,
            "who": side,
            "MiB/s, median": total / _MIB / statistics.median(taken),
            "slowest": total / _MIB / max(taken),
            "fastest": total / _MIB / min(taken),
            "of the limit, median": statistics.median(
                theirs / ours for ours, theirs in zip(taken, seconds[limit], strict=True)
            ),
        }
        for side, taken in seconds.items()
    ]


def _cat(directory: Path, readers: int) -> float:
    began = time.monotonic()
    cats = [subprocess.Popen(["cat", path], stdout=subprocess.DEVNULL) for path in _plain(directory, readers)]
    assert not any(cat.wait() for cat in cats)
    return time.monotonic() - began


def _bare(directory: Path, readers: int, *, verify: bool) -> float:
    up = directory / "up"
    up.write_bytes(b"the server is")
    with bare_read.serving([*_plain(directory, readers), up]) as address:
        bare_read.read(address, readers)
        numbers = {str(number): number for number in range(readers)}
        return _timed(lambda name: bare_read.read(address, numbers[name], verify=verify), list(numbers))


def _plain(directory: Path, readers: int) -> list[Path]:
    return [directory / f"{readers}-{number}" for number in range(readers)]


def _in_a_process(front: str, address: str, ca_file: Path | None, names: list[str]) -> float:
    """Return the seconds that a warmed-up process takes to read these files concurrently."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    reader = context.Process(target=_read_all, args=(front, address, ca_file, names, theirs))
    reader.start()
    theirs.close()
    try:
        taken: float = ours.recv()
        return taken
    finally:
        reader.join()


def _read_all(front: str, address: str, ca_file: Path | None, names: list[str], answer: Any) -> None:
    if front != "WebHDFS":
        with PeaceFileSystem(address, local_sockets=front == "our client", ca_file=ca_file) as files:
            files.status(names[0])
            answer.send(_timed(lambda name: _read_ours(files, name), names))
    else:
        verify = TlsIdentity(TlsFiles(ca=ca_file)).connector_context() if ca_file else False
        with httpx.Client(base_url=address, verify=verify, follow_redirects=True, trust_env=False) as client:
            client.get("/webhdfs/v1/?op=GETFILESTATUS").raise_for_status()
            answer.send(_timed(lambda name: _read_webhdfs(client, name), names))


def _read_ours(files: PeaceFileSystem, name: str) -> int:
    buffer, total = bytearray(_MIB), 0
    with files.open(name) as source:
        while count := source.readinto(buffer):
            total += count
        assert total == source.length
    return total


def _read_webhdfs(client: httpx.Client, name: str) -> int:
    with client.stream("GET", f"/webhdfs/v1{name}?op=OPEN") as response:
        response.raise_for_status()
        total = sum(len(piece) for piece in response.iter_raw())
        assert total == int(response.headers["content-length"])
    return total


def _timed(read: Read, names: list[str]) -> float:
    with ThreadPoolExecutor(len(names)) as threads:
        began = time.monotonic()
        for come in [threads.submit(read, name) for name in names]:
            assert come.result() > 0
        return time.monotonic() - began


def _forget(directory: Path) -> None:
    """Drop all files of a directory from the page cache."""
    os.sync()
    for path in directory.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
