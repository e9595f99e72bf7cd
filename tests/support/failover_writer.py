"""A writer that goes on through failovers, and knows what was acknowledged."""

from __future__ import annotations

import threading
from typing import Self

from support.failover_cluster import FailoverCluster
from support.waiting import wait_until


class Writer:
    """Makes directories and files one after the other, and keeps the names of those that were acknowledged.

    Its thread has ended when the block that uses it ends, also if that fails.
    """

    def __init__(self, cluster: FailoverCluster) -> None:
        self._cluster = cluster
        self._stop = threading.Event()
        self.acknowledged: list[str] = []
        self.faults: list[BaseException] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                name = f"written-{len(self.acknowledged)}"
                if len(self.acknowledged) % 4:
                    self._cluster.mkdir(f"/{name}")
                else:
                    self._cluster.write(f"/{name}", name.encode())
                self.acknowledged.append(name)
        except BaseException as fault:
            self.faults.append(fault)

    def wait_for(self, more: int) -> None:
        wanted = len(self.acknowledged) + more
        wait_until(lambda: self.faults or len(self.acknowledged) >= wanted, f"{more} more are written")
        assert not self.faults, self.faults

    def stop(self) -> list[str]:
        self._stop.set()
        self._thread.join()
        assert not self.faults, self.faults
        return self.acknowledged

    def check(self) -> None:
        """Check that everything that was acknowledged so far is there. Every seventh file is read."""
        names = list(self.acknowledged)
        missing = set(names) - self._cluster.names()
        assert not missing, sorted(missing)
        for name in names[::28]:
            assert self._cluster.read(f"/{name}") == name.encode()
