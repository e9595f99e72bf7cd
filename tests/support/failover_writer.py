"""A writer that continues through failovers and records what was acknowledged."""

from __future__ import annotations

import threading
from typing import Self

from support.failover_cluster import FailoverCluster
from support.waiting import wait_until


class Writer:
    """Makes directories and files one after the other, and records the names that were acknowledged.

    Its thread ends with the block that uses it, even if the block fails.
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
        """Check that everything acknowledged exists. Read every seventh file."""
        names = list(self.acknowledged)
        missing = set(names) - self._cluster.names()
        assert not missing, sorted(missing)
        for name in names[::28]:
            assert self._cluster.read(f"/{name}") == name.encode()
