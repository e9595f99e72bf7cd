"""Run a cluster and a client for `small_costs`: read `[work, files]` as lines of JSON, and answer with the costs.

`small_costs` runs it as a program, with the tree to measure on the import path.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster

_DATA = os.urandom(1024)
_WRITERS = 16


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalCluster(Path(directory), datanodes=3, port=0) as cluster,
        PeaceFileSystem(cluster.http_address) as files,
    ):
        paths = (f"/{number // 1000}/{number}" for number in itertools.count())
        for line in sys.stdin:
            what, count = json.loads(line)
            mine = list(itertools.islice(paths, count))
            if what.startswith("read"):
                _work(files, "write_many", mine)
            before, began_s = _cpu_s(cluster), time.perf_counter()
            _work(files, what, mine)
            took_s = time.perf_counter() - began_s
            after = _cpu_s(cluster)
            costs = {who: (after[who] - before[who]) / count * 1000 for who in after}
            print(json.dumps({"files/s": count / took_s, **costs}), flush=True)


def _work(files: PeaceFileSystem, what: str, paths: list[str]) -> None:
    if what == "write_many":
        assert not files.write_many(dict.fromkeys(paths, _DATA), replication=3)
        return
    if what == "read_many" and hasattr(files, what):
        # A tree without this setting has 16 clients read.
        assert set(files.read_many(paths).values()) == {_DATA}
        return
    turns = iter(paths)
    one = _read if what.startswith("read") else _write
    clients = 1 if what.endswith(" 1 client") else _WRITERS
    threads = [threading.Thread(target=one, args=(files, turns)) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _write(files: PeaceFileSystem, paths: Iterator[str]) -> None:
    for path in paths:
        files.write(path, _DATA, replication=3)


def _read(files: PeaceFileSystem, paths: Iterator[str]) -> None:
    for path in paths:
        assert files.read(path) == _DATA


def _cpu_s(cluster: LocalCluster) -> dict[str, float]:
    return {
        "client": time.process_time(),
        "coordinator": _of_process(cluster.coordinator.pid),
        "datanodes": sum(_of_process(datanode.pid) for datanode in cluster.datanodes),
    }


def _of_process(pid: int) -> float:
    """Return the processor time of all threads of a process, in nanoseconds if the kernel has them."""
    return sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


if __name__ == "__main__":
    main()
