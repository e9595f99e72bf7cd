"""The file operations of one reported micro-batch: 877 opens, 826 mkdirs, 607 unlinks and 213 renames for 8 MB.

    826 mkdirs, of which every second names a directory that is there
    213 files are written under a temporary name and renamed: 213 opens, 213 renames, 8 MB
    664 opens read a file of the batch before
    607 unlinks take files of the batch before that

The report has only the numbers; the rest follows Spark's way of working. Eight threads, like eight tasks, share
the operations. They use Spark's Hadoop client on peacefs (r = 3) and on `file://`, and also bare WebHDFS requests
and our own client on peacefs. The clients take turns.

The guarantees differ: peacefs acknowledges after an fsync on three datanodes, `file://` never syncs. Without its
native library, which PySpark lacks, Hadoop's `file://` starts a process for each new file and directory to set
permissions.
"""

from __future__ import annotations

import os
import random
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster

from .hadoop_client import HadoopFiles, hadoop_jvm
from .report import show
from .webhdfs_files import WebhdfsFiles

_OPENS, _MKDIRS, _UNLINKS, _RENAMES = 877, 826, 607, 213
_FILE_BYTES = 8_000_000 // _RENAMES
_THREADS = 8
_KINDS = ("mkdirs", "write", "rename", "read", "delete")


class Files(Protocol):
    """The operations that each front must offer. Paths begin with a slash."""

    def mkdirs(self, path: str) -> None: ...

    def write(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def read(self, path: str) -> int: ...

    def delete(self, path: str) -> None: ...


class _OwnClient:
    """`PeaceFileSystem` as a front."""

    def __init__(self, address: str, root: str, data: bytes) -> None:
        self._files = PeaceFileSystem(address)
        self._root = root
        self._data = data

    def mkdirs(self, path: str) -> None:
        self._files.mkdirs(self._root + path)

    def write(self, path: str) -> None:
        self._files.write(self._root + path, self._data, overwrite=True, replication=3)

    def rename(self, source: str, target: str) -> None:
        self._files.rename(self._root + source, self._root + target)

    def read(self, path: str) -> int:
        return len(self._files.read(self._root + path))

    def delete(self, path: str) -> None:
        assert self._files.delete(self._root + path)


def main(*, quick: bool = False) -> None:
    share, rounds = (0.1, 1) if quick else (1.0, 3)
    data = os.urandom(_FILE_BYTES)
    with (
        tempfile.TemporaryDirectory() as name,
        LocalCluster(Path(name) / "cluster", datanodes=4, port=0) as cluster,
        hadoop_jvm(Path(name)) as gateway,
    ):
        fronts: dict[str, Files] = {
            "Hadoop's client, peacefs": HadoopFiles(gateway, f"{cluster.webhdfs_uri}/hadoop", _FILE_BYTES),
            "Hadoop's client, file://": HadoopFiles(gateway, f"file://{name}/hadoop", _FILE_BYTES),
            "bare WebHDFS, peacefs": WebhdfsFiles(cluster.http_address, "/bare", data),
            "our client, peacefs": _OwnClient(cluster.http_address, "/own", data),
        }
        runs: dict[str, list[dict[str, float]]] = {front: [] for front in fronts}
        # The first round warms up the JVM and is not counted.
        for turn in range(rounds + 1):
            for front, files in fronts.items():
                runs[front].append(_Replay(files, f"/{turn}", share).run())
    local = statistics.median(run["s"] for run in runs["Hadoop's client, file://"][1:])
    rows = []
    for front, measured in runs.items():
        middle = {key: statistics.median(run[key] for run in measured[1:]) for key in measured[0]}
        rows.append({"front": front, **middle, "of file://": middle["s"] / local})
    title = f"one micro-batch's operations, {_THREADS} threads: s, then median ms of each kind; {rounds} rounds"
    show("replay_io", title, rows)


class _Replay:
    """One batch below `root`. `share` is the share of the reported numbers to play."""

    def __init__(self, files: Files, root: str, share: float) -> None:
        self._files = files
        self._root = root
        self._written, self._read, self._deleted = (
            max(1, int(count * share)) for count in (_RENAMES, _OPENS - _RENAMES, _UNLINKS)
        )
        self._mkdirs = max(1, int(_MKDIRS * share))
        self._lock = threading.Lock()
        self._took: dict[str, list[float]] = defaultdict(list)

    def run(self) -> dict[str, float]:
        self._prepare()
        self._took.clear()
        began = time.perf_counter()
        self._in_threads(self._task)
        seconds = time.perf_counter() - began
        return {"s": seconds, **{kind: statistics.median(self._took[kind]) * 1000 for kind in _KINDS}}

    def _prepare(self) -> None:
        """Create the files that earlier batches have left."""
        self._files.mkdirs(f"{self._root}/before")
        older = [f"{self._root}/before/{number}" for number in range(self._deleted + self._written)]

        def write(worker: int) -> None:
            for path in older[worker::_THREADS]:
                self._files.write(path)

        self._in_threads(write)

    def _task(self, worker: int) -> None:
        """Run one thread's share in the order of a task. Operations without a fixed order are interleaved."""
        mine = range(worker, self._mkdirs, _THREADS)
        directories = [f"{self._root}/state/{worker}/{number // 2}" for number in range(len(mine))]
        steps: list[tuple[str, tuple[Any, ...]]] = [("mkdirs", (path,)) for path in directories]
        for number in range(worker, self._written, _THREADS):
            path = f"{directories[number % len(directories)]}/{number}"
            steps += [("write", (f"{path}.tmp",)), ("rename", (f"{path}.tmp", path))]
        others = [("delete", (f"{self._root}/before/{n}",)) for n in range(worker, self._deleted, _THREADS)]
        for number in range(worker, self._read, _THREADS):
            others.append(("read", (f"{self._root}/before/{self._deleted + number % self._written}",)))
        rng = random.Random(worker)
        for other in others:
            steps.insert(rng.randrange(len(steps) + 1), other)
        for kind, arguments in steps:
            self._timed(kind, arguments)

    def _timed(self, kind: str, arguments: tuple[Any, ...]) -> None:
        begun = time.perf_counter()
        getattr(self._files, kind)(*arguments)
        took = time.perf_counter() - begun
        with self._lock:
            self._took[kind].append(took)

    def _in_threads(self, work: Callable[[int], None]) -> None:
        failed: list[BaseException] = []

        def attempt(worker: int) -> None:
            try:
                work(worker)
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=attempt, args=(worker,)) for worker in range(_THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]
