"""Operations on names over real services: 1, 8 and 64 clients, each with one kept WebHDFS connection, r = 1.

A create is CREATE, its redirect, and an empty body to a datanode, which completes the file: two HTTP requests.
List is a directory of a hundred files. CPU is that of the coordinator's process alone. Client threads, coordinator
and datanode share the machine.

Everything happens below a directory that is five levels deep: first as a superuser, whose rights are not checked,
and without quotas; then as the directory's owner, with quotas of names and bytes on each of the five levels.
`growth` is the CPU relative to the same row with the fewest files.

At the end sixteen clients of our own kind take turns with sixteen WebHDFS clients: see `name_doors`.

With `--tls` instead: eight clients, on clusters without guards, with tokens, and over TLS, which take turns.
"""

from __future__ import annotations

import getpass
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster

from .guarded_clusters import NO_GUARD, GuardedCluster, guarded_clusters
from .name_doors import compare_doors
from .namespaces import FILES_PER_DIRECTORY, OWNER, existing, load
from .plain_http import PlainHttp
from .processor_time import cpu_s
from .report import show

_CLIENTS = (1, 8, 64)
_GUARDED_CLIENTS = 8
_OPERATIONS = ("create", "stat", "list", "rename", "delete")
_TOP = ("1", "2", "3", "4", "5")
_EXISTING = "/" + "/".join((*_TOP, "existing"))
_MADE = "/" + "/".join((*_TOP, "made-"))
_FREE, _CHECKED = "none", "rights, 5 quotas"


def main(*, quick: bool = False, files: int | None = None, tls: bool = False) -> None:
    if tls:
        _compare_guards(quick=quick, files=files or (1000 if quick else 10_000))
        return
    sizes = (1000, 2000) if quick else (10_000, files or 100_000)
    seconds = 0.3 if quick else 3.0
    rows: list[dict[str, object]] = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as directory:
            with LocalCluster(Path(directory), datanodes=1, port=0) as cluster:
                store = cluster.directory / "coordinator" / "metadata.sqlite"
            begun = time.perf_counter()
            load(store, size, holders=(), top=_EXISTING)
            print(f"{size} files were made in {time.perf_counter() - begun:.0f} s", flush=True)
            with LocalCluster(Path(directory), datanodes=1, port=0) as cluster:
                for checks in (_FREE, _CHECKED):
                    if checks == _CHECKED:
                        _set_quotas(cluster)
                    for clients in _CLIENTS:
                        rows += _measure(cluster, size, checks, clients, seconds)
    show("metadata_ops", f"WebHDFS operations on names, {seconds:g} s each", _with_growth(rows))
    compare_doors(quick=quick)


def _set_quotas(cluster: LocalCluster) -> None:
    """Set quotas so high that nothing is refused; only their cost is measured."""
    with PeaceFileSystem(cluster.http_address, user=getpass.getuser()) as superuser:
        for depth in range(1, len(_TOP) + 1):
            superuser.quotas.set("/" + "/".join(_TOP[:depth]), names=1 << 40, space=1 << 60)


def _with_growth(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Add to each row its CPU relative to the first row with as many clients."""
    first: dict[tuple[object, ...], float] = {}
    shown = []
    for row in rows:
        cpu = row["CPU s/1000"]
        assert isinstance(cpu, float)
        before = first.setdefault((row["checks"], row["clients"], row["operation"]), cpu)
        shown.append({**row, "growth": cpu / before if before else 0.0})
    return shown


class _Client:
    """A client's kept connections, and the files that it has made and not yet deleted."""

    def __init__(
        self, cluster: LocalCluster, name: str, user: str, size: int, guarded: GuardedCluster | None = None
    ) -> None:
        self._coordinator = cluster.address.netloc
        self._user = user
        self._token = guarded.token(user) if guarded else ""
        self._context = guarded.context if guarded else None
        self._connections: dict[str, PlainHttp] = {}
        self._name = name
        self._size = size
        self._random = random.Random(name)
        self._made: list[str] = []
        self._renamed: list[str] = []
        self._count = 0

    def create(self) -> bool:
        path = f"{_MADE}{self._user}/{self._name}/{self._count}"
        self._count += 1
        redirect = self._ask("PUT", path, "CREATE&overwrite=false&replication=1", 307)
        parts = urlsplit(redirect)
        self._connection(parts.netloc).ask("PUT", f"{parts.path}?{parts.query}", 201, self._token)
        self._made.append(path)
        return True

    def stat(self) -> bool:
        self._ask("GET", existing(self._random.randrange(self._size), _EXISTING), "GETFILESTATUS")
        return True

    def list(self) -> bool:
        directory = self._random.randrange(self._size // FILES_PER_DIRECTORY)
        self._ask("GET", f"{_EXISTING}/{directory:04}", "LISTSTATUS")
        return True

    def rename(self) -> bool:
        if not self._made:
            return False
        path = self._made.pop()
        self._ask("PUT", path, f"RENAME&destination={path}-renamed")
        self._renamed.append(f"{path}-renamed")
        return True

    def delete(self) -> bool:
        if not self._renamed:
            return False
        self._ask("DELETE", self._renamed.pop(), "DELETE")
        return True

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def _ask(self, method: str, path: str, operation: str, status: int = 200) -> str:
        url = f"/webhdfs/v1{path}?user.name={self._user}&op={operation}"
        return self._connection(self._coordinator).ask(method, url, status, self._token).location

    def _connection(self, netloc: str) -> PlainHttp:
        if netloc not in self._connections:
            self._connections[netloc] = PlainHttp(netloc, self._context)
        return self._connections[netloc]


def _measure(
    cluster: LocalCluster, size: int, checks: str, clients: int, seconds: float
) -> list[dict[str, object]]:
    user = getpass.getuser() if checks == _FREE else OWNER
    working = [_Client(cluster, f"{clients}-{number}", user, size) for number in range(clients)]
    rows: list[dict[str, object]] = []
    for name in _OPERATIONS:
        operations = [getattr(client, name) for client in working]
        cpu_before = cpu_s(cluster.coordinator.pid)
        latencies, taken = _run(operations, seconds)
        cpu = cpu_s(cluster.coordinator.pid) - cpu_before
        cuts = statistics.quantiles(latencies, n=100)
        rows.append(
            {
                "files": size,
                "checks": checks,
                "clients": clients,
                "operation": name,
                "ops/s": len(latencies) / taken,
                "p50 ms": cuts[49] * 1000,
                "p99 ms": cuts[98] * 1000,
                "CPU s/1000": cpu / len(latencies) * 1000,
            }
        )
    for client in working:
        client.close()
    return rows


def _compare_guards(*, quick: bool, files: int) -> None:
    """Measure the operations under each guard, one after the other in each of several rounds."""
    seconds, rounds = (0.3, 2) if quick else (2.0, 7)

    def fill(store: Path) -> None:
        load(store, files, holders=(), top=_EXISTING)

    with tempfile.TemporaryDirectory() as directory, guarded_clusters(Path(directory), 1, fill) as clusters:
        working = {
            guard: [
                _Client(guarded.cluster, str(number), getpass.getuser(), files, guarded)
                for number in range(_GUARDED_CLIENTS)
            ]
            for guard, guarded in clusters.items()
        }
        runs: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for turn in range(rounds):
            for name in _OPERATIONS:
                for guard in (list(clusters), list(clusters)[::-1])[turn % 2]:
                    pid = clusters[guard].cluster.coordinator.pid
                    cpu_before = cpu_s(pid)
                    latencies, taken = _run([getattr(client, name) for client in working[guard]], seconds)
                    cpu = cpu_s(pid) - cpu_before
                    runs.setdefault((name, guard), []).append(
                        (len(latencies) / taken, cpu / len(latencies) * 1000)
                    )
        for clients in working.values():
            for client in clients:
                client.close()
    title = f"{_GUARDED_CLIENTS} WebHDFS clients, {files} files; the median of {rounds} rounds, alternating"
    show("metadata_ops_guards", title, _guard_rows(runs))


def _guard_rows(runs: dict[tuple[str, str], list[tuple[float, float]]]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for (name, guard), measured in sorted(runs.items(), key=lambda run: _OPERATIONS.index(run[0][0])):
        of_none = [
            (rate / free_rate, cpu / free_cpu)
            for (rate, cpu), (free_rate, free_cpu) in zip(measured, runs[name, NO_GUARD], strict=True)
        ]
        rows.append(
            {
                "operation": name,
                "guard": guard,
                "ops/s": statistics.median(rate for rate, _ in measured),
                "CPU s/1000": statistics.median(cpu for _, cpu in measured),
                "rate of none": statistics.median(rate for rate, _ in of_none),
                "CPU of none": statistics.median(cpu for _, cpu in of_none),
            }
        )
    return rows


def _run(operations: Sequence[Callable[[], bool]], seconds: float) -> tuple[list[float], float]:
    """Run all clients until the time is over or nothing is left to do. Return latencies and the duration."""
    latencies: list[float] = []
    failures: list[BaseException] = []
    started = threading.Barrier(len(operations) + 1)

    def work(operation: Callable[[], bool]) -> None:
        mine = []
        started.wait()
        end = begun = time.perf_counter()
        try:
            while end - begun < seconds:
                before = time.perf_counter()
                if not operation():
                    break
                end = time.perf_counter()
                mine.append(end - before)
        except BaseException as failure:
            failures.append(failure)
        latencies.extend(mine)

    threads = [threading.Thread(target=work, args=(operation,)) for operation in operations]
    for thread in threads:
        thread.start()
    started.wait()
    begun = time.perf_counter()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return latencies, time.perf_counter() - begun
