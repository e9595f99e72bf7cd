"""Measure what viewers of the web page cost the coordinator: none, one, and twenty of the same view."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster

from .processor_time import cpu_s
from .report import show

_FILES = 500


def main(*, quick: bool = False) -> None:
    seconds = 5.0 if quick else 30.0
    rows = []
    with tempfile.TemporaryDirectory() as directory, LocalCluster(Path(directory), datanodes=4, port=0) as cluster:
        with PeaceFileSystem(cluster.http_address) as files:
            for number in range(_FILES):
                files.write(f"/files/{number}", os.urandom(1000))
        for view, viewers in (("", 0), ("cluster", 1), ("cluster", 20), ("peace", 1), ("peace", 20), ("", 0)):
            with _looking(cluster, view, viewers) as received:
                time.sleep(1.0)
                before_s, bytes_before, began_s = cpu_s(cluster.coordinator.pid), received[0], time.monotonic()
                time.sleep(seconds)
                took_s = time.monotonic() - began_s
                rows.append(
                    {
                        "view": view or "none",
                        "viewers": viewers,
                        "coordinator, ms of processor a second": 1000
                        * (cpu_s(cluster.coordinator.pid) - before_s)
                        / took_s,
                        "sent to all, KiB/s": (received[0] - bytes_before) / took_s / 1024,
                    }
                )
    show("web_page", f"Viewers of the web page, four datanodes, {_FILES} files, {seconds:g} s each", rows)


@contextmanager
def _looking(cluster: LocalCluster, view: str, viewers: int) -> Iterator[list[int]]:
    """Read this many event streams, as pages do; yield a counter of bytes."""
    received, stop = [0], threading.Event()

    def look() -> None:
        with httpx.Client(timeout=60) as client:
            while not stop.is_set():
                with client.stream("GET", f"{cluster.http_address}/v1/live/{view}") as answer:
                    for piece in answer.iter_raw():
                        received[0] += len(piece)
                        if stop.is_set():
                            break

    with ExitStack() as ending:
        for _ in range(viewers):
            thread = threading.Thread(target=look)
            thread.start()
            ending.callback(thread.join)
        ending.callback(stop.set)
        yield received
