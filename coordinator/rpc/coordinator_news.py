"""What a coordinator tells each datanode about itself: whether it leads, its epoch, last commit, and clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from peacefs.coordinator.failover.leadership import Leadership
from peacefs.protocol.ids import NodeId
from peacefs.protocol.messages import HeartbeatAck, Registered, Trust


class ServedEpoch(Protocol):
    """The epoch to tell datanodes, and the handling of epochs that they have seen: `EpochService`."""

    def epoch(self) -> int: ...
    def seen(self, node: NodeId, epoch: int, commit: int = 0) -> None: ...


class CoordinatorNews:
    """Composes the news that `DatanodeService` sends. Used from one event loop only."""

    def __init__(
        self,
        epochs: ServedEpoch,
        leadership: Leadership,
        *,
        wall_clock: Callable[[], float],
        durable_commit: Callable[[], int] = lambda: 0,
        trust: Callable[[], Trust] = Trust,
    ) -> None:
        """`durable_commit` returns the last durable commit.

        `trust` returns what gateways need to verify callers. It returns the same object until that changes.
        """
        self.epochs = epochs
        self.leadership = leadership
        self.trust = trust
        self._wall_clock = wall_clock
        self._durable_commit = durable_commit

    def registered(self, trust: Trust) -> Registered:
        """Return the answer to a registration."""
        leads = self.leadership.leads
        epoch = self.epochs.epoch() if leads else self.leadership.epoch
        return Registered(epoch, self._wall_clock(), trust, leads)

    def acknowledgement(self, changed: Trust | None) -> HeartbeatAck:
        """Return the answer to a heartbeat, with the trust if it has changed."""
        if self.leadership.leads:
            return HeartbeatAck(self.epochs.epoch(), self._wall_clock(), self._durable_commit(), changed, True)
        # Only the leader tells the number of a commit.
        return HeartbeatAck(self.leadership.epoch, self._wall_clock(), 0, changed, False)
