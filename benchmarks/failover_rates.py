"""Measure small files and changes of names a second, with a journal in three members of etcd and without.

The same datanodes' programs and clients; the two clusters take turns. All syncs share this machine's disk.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster

from .failover_cluster import FailoverCluster
from .plain_http import PlainHttp

_CLIENTS = 8
_DATA = bytes(1024)
_OPERATIONS = ("mkdirs", "rename", "delete")
_GOAL = 0.6
_numbers = itertools.count()


def rates(directory: Path, *, quick: bool) -> list[dict[str, object]]:
    """Return a row for each kind of work: a second alone, with the journal, and their ratio."""
    count, rounds = (80, 2) if quick else (480, 5)
    place = directory / "with-a-journal"
    place.mkdir()
    measured: dict[tuple[str, str], list[float]] = {}
    with LocalCluster(directory / "alone", 3, 0) as alone, FailoverCluster(place, 3, 0) as journal:
        for turn in range(rounds + 1):
            for which in ("alone", "journal"):
                # In the journal's cluster nothing has befallen the first coordinator, which leads.
                http = alone.http_address if which == "alone" else f"http://{journal.coordinators[0].netloc}"
                for kind, rate in _turn(http, count).items():
                    if turn:
                        measured.setdefault((kind, which), []).append(rate)
    rows: list[dict[str, object]] = []
    for kind in ("small files", *_OPERATIONS):
        medians = {which: statistics.median(measured[kind, which]) for which in ("alone", "journal")}
        ratios = [a / b for a, b in zip(measured[kind, "journal"], measured[kind, "alone"], strict=True)]
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
    return rows


def _turn(http: str, count: int) -> dict[str, float]:
    top, each = f"/turn-{next(_numbers)}", count // _CLIENTS
    found = {"small files": _rate(count, lambda client: _write(http, top, client, each))}
    for operation in _OPERATIONS:
        found[operation] = _rate(count, partial(_names, http, top, operation, each))
    return found


def _rate(count: int, work: Callable[[int], None]) -> float:
    began_s = time.monotonic()
    with ThreadPoolExecutor(_CLIENTS) as pool:
        list(pool.map(work, range(_CLIENTS)))
    return count / (time.monotonic() - began_s)


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
