"""After a fault of the leader, how long until requests are answered again? What does the journal cost?

Two coordinators, three members of etcd and five datanodes run on this machine; all syncs share one disk. Existing
files have one chunk each, on three further datanodes that are only connections and have no room. The faults: the
leader is killed; frozen and continued later; killed together with etcd's leader, as if their machine died; told to
hand over. From the moment of the fault, three clients with kept connections ask the standby: to make a directory,
to write a file of 1 KiB through a datanode, and for the status of a file.

Parts, by `--rows`: `takeovers`; `batches` of a Spark query; `rates` with and without a journal, in turns; `lag`,
the time from the acknowledgement of a change until the standby has it; and `joins` of a standby without a store.
"""

from __future__ import annotations

import http.client
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from .failover_cluster import Coordinator, FailoverCluster
from .idle import resident_mb
from .namespaces import existing, load
from .report import show

_GOALS_S = {"killed": 3.0, "frozen": 3.0, "machine": 5.0, "handed over": 0.5}
_LIMIT_S = 120.0
_PAUSE_S = 0.01
_DATANODES, _LINKED = 5, 3
_DATA = os.urandom(1024)
_PARTS = ("takeovers", "batches", "rates", "lag", "joins")
_numbers = itertools.count()


def main(
    *, quick: bool = False, files: int | None = None, runs: int | None = None, rows: Sequence[str] = _PARTS
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        if "takeovers" in rows:
            _takeovers(Path(directory), files or (2000 if quick else 1_000_000), runs or (2 if quick else 20))
        if "batches" in rows:
            from .failover_batches import longest_batch

            batches = longest_batch(Path(directory), failovers=1 if quick else 3)
            show("failover_batches", "Batches of a Spark query while its leader is killed, in seconds", batches)
        if "rates" in rows:
            from .failover_rates import rates

            a_second, costs = rates(Path(directory), quick=quick)
            show("failover_rates", "A second, with a journal and without, by turns", a_second)
            show("failover_costs", "Processor time of a change or file by process, in us", costs)
        if "lag" in rows:
            from .failover_lag import lag

            lags = lag(Path(directory), quick=quick)
            show("failover_lag", "From an acknowledgement until the standby has the change", lags)
        if "joins" in rows:
            from .failover_joins import joins

            joined = joins(Path(directory), files or (2000 if quick else 10_000_000))
            show("failover_joins", "A standby without a store joins", joined)


@contextmanager
def filled_cluster(directory: Path, files: int, datanodes: int = _DATANODES) -> Iterator[FailoverCluster]:
    """Run a cluster whose coordinators begin with this number of files."""
    place = directory / f"cluster-{next(_numbers)}"
    place.mkdir()
    cluster = FailoverCluster(place, datanodes, _LINKED if files else 0)
    if files:
        begun_s = time.monotonic()
        cluster.fill(lambda store, holders: load(store, files, holders))
        print(f"{files} files were made in {time.monotonic() - begun_s:.0f} s", flush=True)
    with cluster:
        yield cluster


def _takeovers(directory: Path, files: int, runs: int) -> None:
    rows: list[dict[str, object]] = []
    memory: list[dict[str, object]] = []
    with filled_cluster(directory, files) as cluster:
        leader, other = cluster.settle()
        for role, each in (("leader", leader), ("standby", other)):
            memory.append({"coordinator": role, "files": files, "memory MB": round(resident_mb(each.pid))})
        for fault in _GOALS_S:
            rows.append(_row(cluster, fault, files, runs))
            print(rows[-1], flush=True)
    show(
        "failover",
        f"From the fault to the first answer, in seconds, of {runs} runs each, with {files} files",
        rows,
    )
    show("failover_memory", "Memory of a standby beside a leader", memory)


def _row(cluster: FailoverCluster, fault: str, files: int, runs: int) -> dict[str, object]:
    measured: dict[str, list[float]] = {"change": [], "file": [], "read": []}
    loads = []
    for _ in range(runs):
        leader, other = cluster.settle()
        loads.append(os.getloadavg()[0])
        asked: dict[str, Callable[[], bool]] = {
            "change": Asker(other).make_directory,
            "file": Asker(other).write_file,
            "read": partial(Asker(other).look, existing(files // 2) if files else "/"),
        }
        began_s = time.monotonic()
        with ThreadPoolExecutor(len(asked) + 1) as pool:
            striking = pool.submit(cluster.strike, fault, leader)
            answers = {name: pool.submit(_answered_after_s, began_s, ask) for name, ask in asked.items()}
            for name, answer in answers.items():
                measured[name].append(answer.result())
        cluster.mend(fault, striking.result())
    return {
        "leader": fault,
        **{f"{name} p50": round(statistics.median(of), 2) for name, of in measured.items()},
        **{f"{name} worst": round(max(of), 2) for name, of in measured.items()},
        "goal": _GOALS_S[fault],
        "load": round(statistics.median(loads), 1),
    }


def _answered_after_s(began_s: float, ask: Callable[[], bool]) -> float:
    while time.monotonic() - began_s < _LIMIT_S:
        if ask():
            return time.monotonic() - began_s
        time.sleep(_PAUSE_S)
    raise SystemExit("nobody has answered")


class Asker:
    """Asks one coordinator on a connection that it keeps. Each call returns whether it was answered as wished."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", coordinator.port, timeout=_LIMIT_S)

    def make_directory(self) -> bool:
        return self._ask("PUT", f"/made/{next(_numbers)}?op=MKDIRS")[0] == 200

    def look(self, path: str) -> bool:
        return self._ask("GET", f"{path}?op=GETFILESTATUS")[0] == 200

    def write_file(self) -> bool:
        """Write 1 KiB as Hadoop's client does: the body goes where the first answer points to."""
        status, location = self._ask("PUT", f"/written/{next(_numbers)}?op=CREATE&replication=3")
        if status != 307:
            return False
        url = urlsplit(location)
        there = http.client.HTTPConnection(url.netloc, timeout=_LIMIT_S)
        try:
            there.request("PUT", f"{url.path}?{url.query}", _DATA)
            return there.getresponse().status == 201
        except (OSError, http.client.HTTPException):
            return False
        finally:
            there.close()

    def _ask(self, method: str, what: str) -> tuple[int, str]:
        try:
            self._connection.request(method, f"/webhdfs/v1{what}&user.name=root")
            answer = self._connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            return 0, ""
        return answer.status, answer.headers.get("location", "")
