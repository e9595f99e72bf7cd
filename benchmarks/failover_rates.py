"""Measure small files and name changes per second, with and without a journal in three members of etcd.

Both clusters have the same datanodes and clients and take turns. All syncs share this machine's disk, and all
processes its cores; so the processor time of each is measured, too.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster

from .failover_cluster import FailoverCluster
from .plain_http import PlainHttp
from .processor_time import cpu_s

_CLIENTS = 8
_DATA = bytes(1024)
_OPERATIONS = ("mkdirs", "rename", "delete")
_GOAL = 0.7
_PROCESSES = ("leader", "standby", "etcd's leader", "its other two", "datanodes", "clients")
_numbers = itertools.count()


class Measured(NamedTuple):
    """One turn of one kind of work."""

    rate: float
    #: Processor time per change or file, in us.
    costs_us: dict[str, float]


def rates(directory: Path, *, quick: bool) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Return a row for each kind of work: per second alone, with the journal, and their ratio.

    Two more rows, one per cluster, give the processor time per change or file, in us, by process.
    """
    count, rounds = (80, 2) if quick else (480, 5)
    place = directory / "with-a-journal"
    place.mkdir()
    measured: dict[tuple[str, str], list[Measured]] = {}
    with LocalCluster(directory / "alone", 3, 0) as alone, FailoverCluster(place, 3, 0) as journal:
        for turn in range(rounds + 1):
            for which in ("alone", "journal"):
                # In the journal's cluster the first coordinator leads, since no fault was injected.
                http = alone.http_address if which == "alone" else f"http://{journal.coordinators[0].netloc}"
                spent = partial(_spent_s, _of_local(alone) if which == "alone" else _of_failover(journal))
                for kind, each in _turn(http, count, spent).items():
                    if turn:
                        measured.setdefault((kind, which), []).append(each)
    rows: list[dict[str, object]] = []
    for kind in ("small files", *_OPERATIONS):
        medians = {
            which: statistics.median(each.rate for each in measured[kind, which]) for which in ("alone", "journal")
        }
        pairs = zip(measured[kind, "journal"], measured[kind, "alone"], strict=True)
        ratios = [with_one.rate / without.rate for with_one, without in pairs]
        rows.append(
            {
                "work": kind,
                "alone/s": round(medians["alone"]),
                "journal/s": round(medians["journal"]),
                "ratio": round(statistics.median(ratios), 2),
                "least": round(min(ratios), 2),
                "most": round(max(ratios), 2),
                "goal": _GOAL,
            }
        )
    return rows, [_costs(kind, which, of) for (kind, which), of in sorted(measured.items())]


def _costs(kind: str, which: str, of: list[Measured]) -> dict[str, object]:
    each = {name: statistics.median(one.costs_us.get(name, 0.0) for one in of) for name in _PROCESSES}
    took = {name: round(us) for name, us in each.items()}
    return {"work": kind, "cluster": which, **took, "together": sum(took.values())}


def _turn(http: str, count: int, spent: Callable[[], dict[str, float]]) -> dict[str, Measured]:
    top, each = f"/turn-{next(_numbers)}", count // _CLIENTS
    found = {"small files": _measure(count, spent, lambda client: _write(http, top, client, each))}
    for operation in _OPERATIONS:
        found[operation] = _measure(count, spent, partial(_names, http, top, operation, each))
    return found


def _measure(count: int, spent: Callable[[], dict[str, float]], work: Callable[[int], None]) -> Measured:
    before, began_s = spent(), time.monotonic()
    with ThreadPoolExecutor(_CLIENTS) as pool:
        list(pool.map(work, range(_CLIENTS)))
    took_s, after = time.monotonic() - began_s, spent()
    return Measured(count / took_s, {name: (after[name] - before[name]) * 1e6 / count for name in after})


def _of_local(cluster: LocalCluster) -> dict[str, list[int]]:
    return {"leader": [cluster.coordinator.pid], "datanodes": [each.pid for each in cluster.datanodes]}


def _of_failover(cluster: FailoverCluster) -> dict[str, list[int]]:
    leader, standby = cluster.coordinators
    of_etcd = cluster.etcd_leader()
    return {
        "leader": [leader.pid],
        "standby": [standby.pid],
        "etcd's leader": [of_etcd.pid],
        "its other two": [each.pid for each in cluster.members if each is not of_etcd],
        "datanodes": [each.pid for each in cluster.datanodes],
    }


def _spent_s(processes: dict[str, list[int]]) -> dict[str, float]:
    """Return the processor time of all processes so far. The clients are threads of this process."""
    return {
        **{name: sum(cpu_s(pid) for pid in pids) for name, pids in processes.items()},
        "clients": time.process_time(),
    }


def _write(http: str, top: str, client: int, count: int) -> None:
    with PeaceFileSystem(http, "root") as files:
        for number in range(count):
            files.write(f"{top}/files/{client}-{number}", _DATA)


def _names(http: str, top: str, operation: str, count: int, client: int) -> None:
    connection = PlainHttp(http.removeprefix("http://"))
    for number in range(count):
        path, other = f"{top}/made/{client}-{number}", f"{top}/moved-{client}-{number}"
        asked = {
            "mkdirs": ("PUT", f"{path}?op=MKDIRS"),
            "rename": ("PUT", f"{path}?op=RENAME&destination={other}"),
            "delete": ("DELETE", f"{other}?op=DELETE&recursive=true"),
        }
        method, url = asked[operation]
        connection.ask(method, f"/webhdfs/v1{url}&user.name=root", 200)
    connection.close()
