"""Measure the cost of tokens: the same small operations on clusters with and without authentication.

Both clusters run side by side and take turns round by round. The processor time of the services is measured,
because other work on the machine disturbs it less than the rate.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx

from peacefs.client.control.token_administration import TokenAdministration
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.client.shared_directories import make_shared_directories

from .processor_time import cluster_cpu_s
from .report import show

_DATA = bytes(1024)
_THREADS = 4
Operation = Callable[[int], None]


class _Front:
    """One cluster, and a client of each kind, with a token if the cluster needs one."""

    def __init__(self, cluster: LocalCluster, token: str) -> None:
        self.cluster = cluster
        self.files = PeaceFileSystem(cluster.http_address, "bench", token=token)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.http = httpx.Client(trust_env=False, headers=headers, timeout=60)
        self._root = f"{cluster.http_address}/webhdfs/v1"

    def operations(self) -> dict[str, Operation]:
        return {
            "write 1 KiB, our client": lambda n: self.files.write(f"/user/bench/c{n}", _DATA, overwrite=True),
            "read 1 KiB, our client": lambda n: self._read_by_client(n),
            "write 1 KiB, WebHDFS": self._write,
            "read 1 KiB, WebHDFS": self._read,
            "GETFILESTATUS": self._status,
        }

    def close(self) -> None:
        self.files.close()
        self.http.close()

    def _read_by_client(self, number: int) -> None:
        assert self.files.read(f"/user/bench/c{number % 10}") == _DATA

    def _write(self, number: int) -> None:
        url = f"{self._root}/user/bench/w{number}?op=CREATE&overwrite=true&user.name=bench"
        redirect = self.http.put(url)
        assert self.http.put(redirect.headers["location"], content=_DATA).status_code == 201

    def _read(self, number: int) -> None:
        url = f"{self._root}/user/bench/w{number % 10}?op=OPEN&user.name=bench"
        assert self.http.get(self.http.get(url).headers["location"]).content == _DATA

    def _status(self, number: int) -> None:
        url = f"{self._root}/user/bench/w{number % 10}?op=GETFILESTATUS&user.name=bench"
        assert self.http.get(url).status_code == 200


def main(*, quick: bool = False) -> None:
    count, rounds = (60, 3) if quick else (400, 9)
    with _fronts() as fronts:
        rows = []
        for operation in next(iter(fronts.values())).operations():
            runs: dict[str, list[tuple[float, float]]] = {kind: [] for kind in fronts}
            for turn in range(rounds):
                for kind in (list(fronts), list(fronts)[::-1])[turn % 2]:
                    runs[kind].append(_run(fronts[kind], operation, count))
            row: dict[str, object] = {"operation": operation}
            for kind, measured in runs.items():
                rates, costs = zip(*measured, strict=True)
                row[f"{kind} /s"] = round(statistics.median(rates), 1)
                row[f"{kind} ms of services"] = round(statistics.median(costs), 3)
            rows.append(row)
    title = f"{count} operations by each of {_THREADS} threads; the median of {rounds} rounds, alternating"
    show("authentication", title, rows)


@contextlib.contextmanager
def _fronts() -> Iterator[dict[str, _Front]]:
    with contextlib.ExitStack() as stack:
        fronts = {}
        for kind in ("simple", "token"):
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            options = [f"--authentication={kind}"]
            cluster = LocalCluster(directory, datanodes=2, port=0, coordinator_options=options)
            stack.enter_context(cluster)
            with PeaceFileSystem(f"unix:{directory}") as administrator:
                list(make_shared_directories(administrator, ["bench"]))
            token = ""
            if kind == "token":
                with TokenAdministration(f"unix:{directory}") as administration:
                    token = administration.create("bench", 3600).token
            fronts[kind] = _Front(cluster, token)
            stack.callback(fronts[kind].close)
        yield fronts


def _run(front: _Front, name: str, count: int) -> tuple[float, float]:
    """Return operations per second, and milliseconds of the services' processor time per operation."""
    operation = front.operations()[name]
    faults: list[BaseException] = []

    def work(thread: int) -> None:
        try:
            for number in range(count):
                operation(thread * count + number)
        except BaseException as fault:
            faults.append(fault)

    before_s, began_s = _services_s(front), time.monotonic()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]
    took_s = time.monotonic() - began_s
    done = count * _THREADS
    return done / took_s, (_services_s(front) - before_s) * 1000 / done


def _services_s(front: _Front) -> float:
    spent_s = cluster_cpu_s(front.cluster, "clients")
    return spent_s["coordinator"] + spent_s["datanodes"]
