"""Collects the changes of replicas since the last heartbeat. Thread-safe; every pipeline thread adds to it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Final, Protocol

from peacefs.protocol.messages import Replica

# Maximum for each kind of change: more than a datanode can write or delete in a second.
changes_per_heartbeat: Final = 8000


class SharedChanges:
    """Changes for several coordinators, each of which takes all of them at its own pace."""

    def __init__(self) -> None:
        self._takers: list[ReplicaChanges] = []

    def another(self) -> ReplicaChanges:
        """Return the collector for one more coordinator. Call before the first change."""
        self._takers.append(ReplicaChanges())
        return self._takers[-1]

    def added(self, replica: Replica) -> None:
        for taker in self._takers:
            taker.added(replica)

    def removed(self, replica: Replica) -> None:
        for taker in self._takers:
            taker.removed(replica)

    def corrupt(self, replica: Replica) -> None:
        for taker in self._takers:
            taker.corrupt(replica)


class ChangeSink(Protocol):
    """The methods for code that changes replicas."""

    def added(self, replica: Replica) -> None: ...
    def removed(self, replica: Replica) -> None: ...
    def corrupt(self, replica: Replica) -> None: ...


@dataclass
class ReplicaChanges:
    """Replicas added, removed, or found corrupt, in order."""

    _added: list[Replica] = field(default_factory=list)
    _removed: list[Replica] = field(default_factory=list)
    _corrupt: list[Replica] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def added(self, replica: Replica) -> None:
        with self._lock:
            self._added.append(replica)

    def removed(self, replica: Replica) -> None:
        with self._lock:
            # A replica added and removed between two heartbeats need not be reported as added.
            if replica in self._added:
                self._added.remove(replica)
            self._removed.append(replica)

    def corrupt(self, replica: Replica) -> None:
        with self._lock:
            self._corrupt.append(replica)

    def take(self) -> tuple[list[Replica], list[Replica], list[Replica]]:
        """Remove as many pending changes as fit into one heartbeat, and return them: added, removed, corrupt."""
        with self._lock:
            taken = []
            for pending in (self._added, self._removed, self._corrupt):
                taken.append(pending[:changes_per_heartbeat])
                del pending[:changes_per_heartbeat]
            return taken[0], taken[1], taken[2]

    def forget(self) -> None:
        """Drop the changes, because a full report follows. Corrupt replicas are kept: it does not contain them."""
        with self._lock:
            self._added.clear()
            self._removed.clear()
