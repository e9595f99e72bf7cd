"""Checkpoints of units in peacefs, written by the I/O service, so that Peace schedules the writes.

A driver begins a run of the directory, like a Spark driver (decision 15). The driver and its nodes write through
the path of the run, and writes of older drivers are refused. The cluster does not see rows that go to a sink. So a
driver delivers only while it has a lease: the coordinator has confirmed, at most a second ago, that it is the
youngest driver.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from peacefs.client.control.addresses import parse_address
from peacefs.client.control.query_runs import CheckpointRuns
from peacefs.client.control.token_source import TokenSource
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.dataflow.core.messages import CheckpointId, sequence_of
from peacefs.dataflow.limits import dataflow_checkpoint_retry_s
from peacefs.dataflow.logs.peace_segments import PeaceSegments
from peacefs.dataflow.logs.segments import SegmentStore
from peacefs.protocol.errors import FileNotFound, PeacefsError, QueryFailed, RunSuperseded
from peacefs.state.checkpoints.peace_store import PeaceStore
from peacefs.state.checkpoints.store import CheckpointStore as PageStore

from .checkpoint_store import LOGS, RECORD, name_of
from .driver_fence import DeliveryLock, DriverFence, lock_of_this_host

dataflow_lease_s: Final = 1.0
# How long rows wait for a coordinator to confirm that they may be delivered. After that the query fails.
dataflow_unfenced_s_max: Final = 600.0


log = logging.getLogger("peacefs.dataflow")


@dataclass
class PeaceCheckpoints:
    """Checkpoints in a directory of a cluster. Each process connects on first use. Thread-safe.

    `location`: the path of a run of the directory that was begun for this driver, as agents' programs get it. Such
    a driver begins no run itself.
    """

    coordinator: str
    directory: str
    user: str | None = None
    location: str | None = None
    _files: PeaceFileSystem | None = field(default=None, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def begin_run(self) -> tuple[PeaceCheckpoints, DriverFence]:
        files = self._connected()
        fenced = PeaceCheckpoints(self.coordinator, self.location or self._begun(files.user), self.user)
        fenced._files = files
        if fenced.recorded() is not None:
            # An older driver may have checked just before, and may deliver for that much longer.
            time.sleep(dataflow_lease_s)
        lock = lock_of_this_host(f"{self.coordinator} {self.directory}")
        lock.wait_for_others("a process of this host")
        return fenced, PeaceFence(fenced, lock)

    def _begun(self, user: str) -> str:
        with CheckpointRuns(parse_address(self.coordinator), user, TokenSource.of(None)) as runs:
            return runs.begin(self.directory, host=socket.gethostname(), pid=os.getpid()).location

    def still_writes(self) -> None:
        """Make a change without effect, to check that this run is the latest.

        Raises RunSuperseded if it is not, PeerUnreachable and others.
        """
        self._connected().mkdirs(self.directory)

    def pages(self) -> PageStore:
        return PeaceStore(self._connected(), root=self.directory)

    def segments(self) -> SegmentStore:
        return PeaceSegments(self._connected(), f"{self.directory}/{LOGS}")

    def record(self, record: bytes, name: str = RECORD) -> None:
        files = self._connected()
        staged = f"{self.directory}/.{name}"
        files.write(staged, record, overwrite=True)
        files.rename(staged, f"{self.directory}/{name}", overwrite=True)

    def recorded(self, name: str = RECORD) -> bytes | None:
        try:
            return self._connected().read(f"{self.directory}/{name}")
        except FileNotFound:
            return None

    def replicas(self, unit: str, checkpoint: CheckpointId) -> Mapping[str, int]:
        files = self._connected()
        held: Counter[str] = Counter()
        for entry in files.list(f"{self.directory}/{name_of(unit)}-{sequence_of(checkpoint)}"):
            for chunk in files.channels.calls.open(entry.path, files.user).layout.chunks:
                held.update({hop.node: chunk.length for hop in chunk.replicas})
        return held

    def close(self) -> None:
        with self._lock:
            if self._files is not None:
                self._files.close()
                self._files = None

    def __getstate__(self) -> tuple[str, str, str | None]:
        return self.coordinator, self.directory, self.user

    def __setstate__(self, state: tuple[str, str, str | None]) -> None:
        self.coordinator, self.directory, self.user = state
        self.location, self._files, self._lock = None, None, threading.Lock()

    def _connected(self) -> PeaceFileSystem:
        with self._lock:
            if self._files is None:
                self._files = PeaceFileSystem(self.coordinator, user=self.user)
            return self._files


class PeaceFence:
    """The fence of a directory of a cluster."""

    def __init__(self, checkpoints: PeaceCheckpoints, lock: DeliveryLock) -> None:
        """`checkpoints`: those of a run. `lock`: shared by the drivers of this host.

        The lock is needed because a driver may be stopped after it has checked its lease.
        """
        self._checkpoints = checkpoints
        self._lock = lock
        self._closed = threading.Event()
        # The time at which the lease ends.
        self._until_s = 0.0

    def check(self) -> None:
        asked_s = _now_s()
        self._checkpoints.still_writes()
        self._until_s = max(self._until_s, asked_s + dataflow_lease_s)

    @contextlib.contextmanager
    def delivery(self) -> Iterator[None]:
        with self._lock.held():
            self._renew()
            yield

    def _renew(self) -> None:
        """Return once there is a valid lease, however long that takes. Raises RunSuperseded, QueryFailed."""
        begun_s = _now_s()
        while _now_s() >= self._until_s:
            try:
                self.check()
            except RunSuperseded:
                raise
            except (PeacefsError, OSError) as fault:
                waited_s = _now_s() - begun_s
                if waited_s > dataflow_unfenced_s_max or self._closed.is_set():
                    raise QueryFailed(
                        f"no coordinator has said for {waited_s:.0f} s whether another driver has taken over: "
                        f"{fault}; nothing more is delivered: resume the query when the cluster is there again"
                    ) from fault
                log.warning(
                    "rows wait until a coordinator confirms that no other driver has taken over: %s", fault
                )
                self._closed.wait(dataflow_checkpoint_retry_s)

    def close(self) -> None:
        self._closed.set()


def _now_s() -> float:
    """Return the time of a clock that does not stop while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
