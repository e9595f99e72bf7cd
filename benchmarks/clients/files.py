"""One large file with one client, and many small ones with eight threads of one process, by each way in turn."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks.report import show
from peacefs.client.local_cluster.cluster import LocalCluster

from .ways import OURS, OURS_OF_FSSPEC, Way, all_ways, reason_to_be_ahead

_THREADS = 8
_SMALL_BYTES = 1024
_DATANODES = 3
_COLUMNS = {
    "write large": "write, MiB/s",
    "read large": "read, MiB/s",
    "write small": "write 1 KiB, files/s",
    "read small": "read 1 KiB, files/s",
    "look": "stat/s",
}


def compare_files(*, quick: bool) -> None:
    """Show median MiB and files per second. The ways take turns in each round."""
    large_bytes, small_files, rounds = (32 << 20, 64, 2) if quick else (256 << 20, 400, 3)
    large, small = os.urandom(large_bytes), os.urandom(_SMALL_BYTES)
    figures: dict[tuple[str, str], list[float]] = {}
    with (
        tempfile.TemporaryDirectory() as name,
        LocalCluster(Path(name) / "cluster", datanodes=_DATANODES, port=0) as cluster,
        all_ways(cluster, Path(name), [large_bytes, _SMALL_BYTES]) as ways,
        ThreadPoolExecutor(_THREADS) as threads,
    ):

        def at_once(call: Callable[[str], object], round_number: int) -> float:
            names = [f"small-{round_number}-{number}" for number in range(small_files)]
            return small_files / _took(lambda: list(threads.map(call, names)))

        for round_number in range(-1, rounds):
            for what in _COLUMNS:
                for way_name, way in ways.items():
                    figure = _measure(way, what, round_number, large, small, at_once)
                    # The first round warms up connections, the JVM and caches.
                    if round_number >= 0:
                        figures.setdefault((way_name, what), []).append(figure)
                print(f"round {round_number + 2} of {rounds + 1}: {what}", flush=True)
            for way in ways.values():
                way.remove(f"large-{round_number}")
        medians = {key: statistics.median(taken) for key, taken in figures.items()}
        rows: list[dict[str, object]] = []
        for way_name in ways:
            ahead_in = [
                _COLUMNS[what]
                for what in _COLUMNS
                if way_name not in (OURS, OURS_OF_FSSPEC)
                and medians[way_name, what] > max(medians[OURS, what], medians[OURS_OF_FSSPEC, what])
            ]
            figures_of_way = {column: medians[way_name, what] for what, column in _COLUMNS.items()}
            why = reason_to_be_ahead(way_name, ahead_in)
            rows.append({"way": way_name, **figures_of_way, "ahead of ours, and why": why})
    title = (
        f"one file of {large_bytes >> 20} MiB, and {small_files} of 1 KiB by {_THREADS} threads; three replicas, "
        f"the median of {rounds} rounds, ways in turn"
    )
    show("clients_files", title, rows)


def _measure(
    way: Way,
    what: str,
    round_number: int,
    large: bytes,
    small: bytes,
    at_once: Callable[[Callable[[str], object], int], float],
) -> float:
    path = f"large-{round_number}"
    match what:
        case "write large":
            return len(large) / (1 << 20) / _took(lambda: way.write(path, large))
        case "read large":
            return len(large) / (1 << 20) / _took(lambda: _check(way.read(path), len(large)))
        case "write small":
            return at_once(lambda each: way.write(each, small), round_number)
        case "read small":
            return at_once(lambda each: _check(way.read(each), len(small)), round_number)
        case _:
            return at_once(partial(way.look), round_number)


def _check(come: int, wanted: int) -> None:
    assert come == wanted, f"{come} of {wanted} bytes were read"


def _took(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun
