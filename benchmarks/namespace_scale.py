"""Measure a coordinator with many files: start, memory, stat and mkdir of 16 clients, and the longest wait.

The files are empty, a thousand a directory, and were written past all services (`namespaces.load_empty`):
1,000,000 take 156 MB and 25 s of one processor. The coordinator is a process, with one datanode.

Sixteen clients in two processes look files up, or make directories beside them, over frames. They choose the files
uniformly, or by Zipf's law with exponent 1.1, whose ranks are scattered over all directories. Meanwhile one more
client, in a process of its own, asks for the status of one file every 5 ms. Its waits show how long one busy
moment of the coordinator delays others. All processes share the machine. Processor time is given for each process
of the coordinator, in ms per operation. Resident memory is measured after the start and after the work.
"""

from __future__ import annotations

import getpass
import json
import multiprocessing
import random
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path
from typing import Any, NamedTuple

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster

from .idle import resident_mb
from .namespaces import EMPTY_FILES_PER_DIRECTORY, empty_directory, empty_file, load_empty
from .processor_time import children_of, cpu_s
from .report import save, show

_SIZES = (10_000, 1_000_000)
_CLIENTS, _PROCESSES = 16, 2
_OPERATIONS = ("stat", "mkdir")
_UNIFORM, _ZIPF = "uniform", "Zipf"
_EXPONENT = 1.1
#: Coprime to all numbers of files, to put neighbouring ranks into different directories.
_STRIDE = 7_368_787
_WATCH_S = 0.005
_READY_S = 600.0


class _Part(NamedTuple):
    """The results of one process of clients."""

    calls: int
    seconds: float


def main(
    *, quick: bool = False, files: int | None = None, distribution: str | None = None, as_json: bool = False
) -> None:
    """Run the benchmark. `distribution` is uniform or zipf, None for both."""
    sizes = (files,) if files is not None else _SIZES[:1] if quick else _SIZES
    choices = [each for each in (_UNIFORM, _ZIPF) if distribution in (None, each.lower())]
    starts: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as directory:
            start, worked = _measure(Path(directory), size, choices, seconds=1.0 if quick else 5.0)
        starts.append(start)
        rows += worked
    starts, rows = _aligned(starts), _aligned(rows)
    if as_json:
        save("namespace_scale_start", starts)
        save("namespace_scale", rows)
        print(json.dumps({"starts": starts, "operations": rows}, indent=1))
        return
    show("namespace_scale_start", "A coordinator with many files is started", starts)
    show("namespace_scale", f"{_CLIENTS} clients over frames, and one that looks every 5 ms", rows)


def _measure(
    directory: Path, size: int, choices: list[str], seconds: float
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    with LocalCluster(directory, datanodes=1, port=0) as made:
        store = made.directory / "coordinator"
    built_s = _timed(lambda: load_empty(store / "metadata.sqlite", size, getpass.getuser()))
    cluster = LocalCluster(directory, datanodes=1, port=0)
    begun_s = time.monotonic()
    cluster.begin()
    try:
        with PeaceFileSystem(cluster.http_address) as asking:
            asking.status(empty_file(size // 2))
            answered_s = time.monotonic() - begun_s
            while not asking.cluster_status()["ready"]:
                assert time.monotonic() - begun_s < _READY_S, "the coordinator does not become ready"
                time.sleep(0.01)
        ready_s = time.monotonic() - begun_s
        memory = _each_of(cluster, resident_mb)
        rows = [
            {"files": size, "names": choice, "operation": operation, **numbers}
            for choice, operation, numbers in _work(cluster, size, choices, seconds)
        ]
        start = {
            "files": size,
            "build s": built_s,
            "store MB": sum(file.stat().st_size for file in store.rglob("*") if file.is_file()) / 1e6,
            "first answer s": answered_s,
            "ready s": ready_s,
            **{f"{name} MB": used for name, used in memory.items()},
            **{f"{name} MB after work": used for name, used in _each_of(cluster, resident_mb).items()},
        }
    finally:
        cluster.stop()
    return start, rows


def _work(
    cluster: LocalCluster, size: int, choices: list[str], seconds: float
) -> list[tuple[str, str, dict[str, float]]]:
    """Measure each operation with each choice of names."""
    context = multiprocessing.get_context("spawn")
    parts: Queue[_Part] = context.Queue()
    waits: Queue[list[float]] = context.Queue()
    barrier = context.Barrier(_PROCESSES + 1)
    plan = [(choice, operation) for choice in choices for operation in _OPERATIONS]
    workers = [
        context.Process(target=_clients, args=(cluster.http_address, number, size, plan, seconds, barrier, parts))
        for number in range(_PROCESSES)
    ]
    for worker in workers:
        worker.start()
    measured = []
    for choice, operation in plan:
        barrier.wait()
        begin, end = context.Event(), context.Event()
        watcher = context.Process(target=_watch, args=(cluster.http_address, empty_file(0), begin, end, waits))
        watcher.start()
        begin.wait()
        before = _each_of(cluster, cpu_s)
        barrier.wait()
        shares = [parts.get() for _ in workers]
        spent = _each_of(cluster, cpu_s)
        end.set()
        waited = sorted(waits.get())
        watcher.join()
        calls = max(1, sum(share.calls for share in shares))
        numbers = {
            "per s": calls / max(share.seconds for share in shares),
            "other's p99.9 ms": waited[min(len(waited) - 1, int(len(waited) * 0.999))] * 1000,
            "other's longest ms": waited[-1] * 1000,
            **{f"{name} CPU ms": (spent[name] - before.get(name, 0.0)) / calls * 1000 for name in spent},
        }
        measured.append((choice, operation, numbers))
    for worker in workers:
        worker.join()
    return measured


def _clients(
    address: str,
    process: int,
    size: int,
    plan: list[tuple[str, str]],
    seconds: float,
    barrier: Barrier,
    parts: Queue[_Part],
) -> None:
    """Run half of the clients, one thread each, in this process."""
    with PeaceFileSystem(address) as files:
        for choice, operation in plan:
            calls = [0] * (_CLIENTS // _PROCESSES)
            failures: list[BaseException] = []

            def work(
                number: int,
                choice: str = choice,
                operation: str = operation,
                calls: list[int] = calls,
                failures: list[BaseException] = failures,
            ) -> None:
                name = f"{choice}-{process}-{number}"
                chance = random.Random(name)
                end = time.perf_counter() + seconds
                try:
                    while time.perf_counter() < end:
                        _call(files, operation, choose(chance, choice, size), f"{name}-{calls[number]}")
                        calls[number] += 1
                except BaseException as failure:
                    failures.append(failure)

            threads = [threading.Thread(target=work, args=(number,)) for number in range(len(calls))]
            files.status("/")
            barrier.wait()
            barrier.wait()
            begun_s = time.perf_counter()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            parts.put(_Part(sum(calls), time.perf_counter() - begun_s))
            if failures:
                raise failures[0]


def _call(files: PeaceFileSystem, operation: str, number: int, name: str) -> None:
    if operation == "stat":
        files.status(empty_file(number))
    else:
        files.mkdirs(f"{empty_directory(number // EMPTY_FILES_PER_DIRECTORY)}/{name}")


def choose(chance: random.Random, choice: str, size: int) -> int:
    """Draw the number of a file below `size`."""
    if choice == _UNIFORM:
        return chance.randrange(size)
    # The inverse of the continuous law's distribution between 1 and size + 1.
    tail: float = 1 - (size + 1) ** (1 - _EXPONENT)
    rank = int((1 - chance.random() * tail) ** (1 / (1 - _EXPONENT))) - 1
    return min(rank, size - 1) * _STRIDE % size


def _watch(address: str, path: str, begin: Event, end: Event, waits: Queue[list[float]]) -> None:
    """Ask for one status every 5 ms, and report the duration of each."""
    waited: list[float] = []
    with PeaceFileSystem(address) as files:
        files.status(path)
        begin.set()
        while not end.is_set():
            asked_s = time.perf_counter()
            files.status(path)
            waited.append(time.perf_counter() - asked_s)
            time.sleep(_WATCH_S)
    waits.put(waited)


def _each_of(cluster: LocalCluster, measure: Callable[[int], float]) -> dict[str, float]:
    """Return a measurement of each process of the coordinator that existed all the time."""
    pid = cluster.coordinator.pid
    found = {"coordinator": measure(pid)}
    for number, child in enumerate(children_of(pid), 1):
        try:
            found[f"child {number}"] = measure(child)
        except (FileNotFoundError, RuntimeError):
            continue
    return found


def _timed(work: Callable[[], None]) -> float:
    begun_s = time.monotonic()
    work()
    return time.monotonic() - begun_s


def _aligned(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add missing columns, so that all rows have the same ones."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return [{name: row.get(name, float("nan")) for name in columns} for row in rows]
