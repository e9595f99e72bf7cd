"""Measure how long after its acknowledgement a change is visible at the standby, also under load.

A client makes a directory at the leader and polls the standby's `fsck` for it on a kept connection. So a lag
includes the time of one request.
"""

from __future__ import annotations

import http.client
import itertools
import os
import statistics
import threading
import time
from pathlib import Path

from .failover_cluster import FailoverCluster
from .plain_http import PlainHttp

_OTHERS = 4
_GOAL_S = 0.1
_LIMIT_S = 30.0


def lag(directory: Path, *, quick: bool) -> list[dict[str, object]]:
    """Return a row for an otherwise idle cluster, and one with clients that change names."""
    count = 50 if quick else 500
    place = directory / "lag"
    place.mkdir()
    with FailoverCluster(place, 1, 0) as cluster:
        leader, standby = cluster.settle()
        rows = [_row("alone", _lags_s(leader.netloc, standby.netloc, "/alone", count), 0.0)]
        ended = threading.Event()
        made = itertools.count()
        others = [
            threading.Thread(target=_change, args=(leader.netloc, f"/other-{number}", ended, made))
            for number in range(_OTHERS)
        ]
        for other in others:
            other.start()
        begun_s, before = time.monotonic(), next(made)
        lags_s = _lags_s(leader.netloc, standby.netloc, "/beside", count)
        rate = (next(made) - before) / (time.monotonic() - begun_s)
        ended.set()
        for other in others:
            other.join()
        rows.append(_row(f"beside {_OTHERS} clients", lags_s, rate))
    return rows


def _row(which: str, lags_s: list[float], rate: float) -> dict[str, object]:
    ordered = sorted(each * 1000 for each in lags_s)
    return {
        "changes": which,
        "others' changes/s": round(rate),
        "p50 ms": round(statistics.median(ordered), 1),
        "p99 ms": round(ordered[int(0.99 * (len(ordered) - 1))], 1),
        "worst ms": round(ordered[-1], 1),
        "goal ms": round(_GOAL_S * 1000),
        "load": round(os.getloadavg()[0], 1),
    }


def _change(netloc: str, top: str, ended: threading.Event, made: itertools.count[int]) -> None:
    connection = PlainHttp(netloc)
    while not ended.is_set():
        connection.ask("PUT", f"/webhdfs/v1{top}/{next(made)}?op=MKDIRS&user.name=root", 200)
    connection.close()


def _lags_s(leader: str, standby: str, top: str, count: int) -> list[float]:
    making, looking = PlainHttp(leader), http.client.HTTPConnection(standby, timeout=_LIMIT_S)
    found = []
    for number in range(count):
        path = f"{top}/{number}"
        making.ask("PUT", f"/webhdfs/v1{path}?op=MKDIRS&user.name=root", 200)
        acknowledged_s = time.monotonic()
        while not _is_there(looking, path):
            if time.monotonic() - acknowledged_s > _LIMIT_S:
                raise SystemExit(f"{path} has not come to the standby")
        found.append(time.monotonic() - acknowledged_s)
    making.close()
    looking.close()
    return found


def _is_there(looking: http.client.HTTPConnection, path: str) -> bool:
    looking.request("GET", f"/v1/fsck?path={path}&user=root")
    answer = looking.getresponse()
    answer.read()
    return answer.status == 200
