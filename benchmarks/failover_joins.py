"""Measure how long a standby without a store needs to join a leader with many files, and how long changes wait.

The files are empty (`namespaces.load_empty`). A client makes a directory every 20 ms at the leader. Its waits show
how much copying the metadata delays the leader.
"""

from __future__ import annotations

import os
import shutil
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from peacefs.protocol.messages import Replica

from .failover_cluster import Coordinator, FailoverCluster
from .idle import resident_mb
from .namespaces import OWNER, load_empty
from .plain_http import PlainHttp

_PAUSE_S = 0.02
_ALONE_S = 10.0


def joins(directory: Path, files: int) -> list[dict[str, object]]:
    place = directory / "joins"
    place.mkdir()
    cluster = FailoverCluster(place, 1, 0)
    cluster.fill(partial(_load, files))
    with cluster:
        leader, standby = cluster.settle()
        with _waits_s(leader, "/alone") as alone:
            time.sleep(_ALONE_S)
        standby.kill()
        shutil.rmtree(cluster.store(cluster.coordinators.index(standby)))
        begun_s = time.monotonic()
        with _waits_s(leader, "/beside") as beside:
            standby.start()
            cluster.settle()
        took_s = time.monotonic() - begun_s
        return [
            {
                "files": files,
                "store MB": round(_size_mb(cluster.store(cluster.coordinators.index(leader)))),
                "ready after s": round(took_s, 1),
                "a change waits p50 ms, alone": _ms(statistics.median(alone)),
                "worst, alone": _ms(max(alone)),
                "p50 ms, during the join": _ms(statistics.median(beside)),
                "worst, during the join": _ms(max(beside)),
                "leader MB": round(resident_mb(leader.pid)),
                "standby MB": round(resident_mb(standby.pid)),
                "load": round(os.getloadavg()[0], 1),
            }
        ]


def _load(files: int, store: Path, _holders: tuple[str, ...]) -> list[Replica]:
    load_empty(store, files, OWNER)
    return []


@contextmanager
def _waits_s(leader: Coordinator, top: str) -> Iterator[list[float]]:
    """Make directories while the block runs. Append the seconds of each to the yielded list."""
    waits: list[float] = []
    ended = threading.Event()

    def change() -> None:
        connection = PlainHttp(leader.netloc)
        while not ended.is_set():
            begun_s = time.monotonic()
            connection.ask("PUT", f"/webhdfs/v1{top}/{len(waits)}?op=MKDIRS&user.name=root", 200)
            waits.append(time.monotonic() - begun_s)
            time.sleep(_PAUSE_S)
        connection.close()

    changing = threading.Thread(target=change)
    changing.start()
    try:
        yield waits
    finally:
        ended.set()
        changing.join()


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)


def _size_mb(store: Path) -> float:
    return sum(each.stat().st_size for each in store.rglob("*") if each.is_file()) / 1e6
