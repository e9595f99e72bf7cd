"""Kill one of five datanodes: when is it noticed, when is all replicated again, how slow are requests?

Before and during that, four clients write and read files of 4 KiB, r = 3. Aim: their 99th percentile during the
copies is at most twice that before. The time until the death is noticed is reported separately: it is
`limits.dead_after_s` by design, and in it writes may still go to the dead datanode.
"""

from __future__ import annotations

import os
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import PeacefsError

from .report import show

_DATANODES = 5
_CLIENTS = 4
_SMALL = os.urandom(4096)
_FILE_BYTES = 256 * 1024 * 1024
_LIMIT_S = 1800.0


def main(*, quick: bool = False, gigabytes: float | None = None) -> None:
    size = int((gigabytes or (0.1 if quick else 1.0)) * 1e9)
    before_s = 2.0 if quick else 15.0
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalCluster(Path(directory), datanodes=_DATANODES, port=0) as cluster,
        PeaceFileSystem(cluster.http_address) as files,
    ):
        _fill(files, size)
        clients = _Clients(cluster.http_address)
        clients.start()
        try:
            began_s = time.monotonic()
            time.sleep(before_s)
            killed_s = time.monotonic()
            cluster.datanodes[0].kill()
            noticed_s = _until(lambda: _dead(files))
            to_repair = _under_replicated(files)
            repaired_s = _until(lambda: _under_replicated(files) == 0)
        finally:
            clients.stop()
    before = clients.percentiles_ms(began_s, killed_s)
    rows = [
        {"what": "killed to noticed, s", "value": noticed_s - killed_s},
        {"what": "chunks that lacked a replica then", "value": float(to_repair)},
        {"what": "noticed to fully replicated, s", "value": repaired_s - noticed_s},
        {"what": "requests that failed", "value": float(clients.failed)},
    ]
    phases = {"before": (began_s, killed_s), "unnoticed": (killed_s, noticed_s), "repair": (noticed_s, repaired_s)}
    for phase, (start_s, end_s) in phases.items():
        p50, p99 = clients.percentiles_ms(start_s, end_s)
        rows.append({"what": f"foreground p50, {phase}, ms", "value": p50})
        rows.append({"what": f"foreground p99, {phase}, ms", "value": p99})
        if phase == "repair":
            rows.append({"what": "p99 during repair, of before (aim: 2)", "value": p99 / before[1]})
    show("repair", f"{size / 1e9:g} GB of files, r = 3, on {_DATANODES} datanodes, one killed", rows)


def _fill(files: PeaceFileSystem, size: int) -> None:
    piece = os.urandom(1 << 20)
    for number, start in enumerate(range(0, size, _FILE_BYTES)):
        with files.open_for_writing(f"/filled/{number}", replication=3) as sink:
            for at in range(start, min(start + _FILE_BYTES, size), len(piece)):
                sink.write(piece[: size - at])


class _Clients:
    """Threads that alternately write a file and read one of their files, each with a client of its own."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(n,)) for n in range(_CLIENTS)]
        #: Start and duration of each request, in seconds.
        self._taken: list[tuple[float, float]] = []
        self.failed = 0

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def percentiles_ms(self, start_s: float, end_s: float) -> tuple[float, float]:
        """Return the 50th and 99th percentile of requests that began in this interval."""
        taken = [seconds * 1000 for began_s, seconds in self._taken if start_s <= began_s < end_s]
        cuts = statistics.quantiles(taken, n=100)
        return cuts[49], cuts[98]

    def _work(self, number: int) -> None:
        rng = random.Random(number)
        with PeaceFileSystem(self._address) as files:
            written = 0
            while not self._stopped.is_set():
                path = f"/foreground/{number}/{written}"
                self._time(partial(files.write, path, _SMALL, replication=3))
                written += 1
                path = f"/foreground/{number}/{rng.randrange(written)}"
                self._time(partial(files.read, path))

    def _time(self, request: Callable[[], Any]) -> None:
        began_s = time.monotonic()
        try:
            request()
        except PeacefsError:
            self.failed += 1
        self._taken.append((began_s, time.monotonic() - began_s))


def _dead(files: PeaceFileSystem) -> bool:
    return any(node["state"] == "dead" for node in files.cluster_status()["datanodes"])


def _under_replicated(files: PeaceFileSystem) -> int:
    count: int = files.cluster_status()["chunks"]["under_replicated"]
    return count


def _until(condition: Callable[[], bool]) -> float:
    """Wait for a condition; return its time in monotonic seconds."""
    deadline_s = time.monotonic() + _LIMIT_S
    while not condition():
        assert time.monotonic() < deadline_s, "it takes too long"
        time.sleep(0.1)
    return time.monotonic()
