"""What a coordinator tells each datanode of itself: whether it leads, its epoch, its last commit, its clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from peacefs.coordinator.failover.leadership import Leadership
from peacefs.protocol.ids import NodeId
from peacefs.protocol.messages import HeartbeatAck, Registered, Trust


class ServedEpoch(Protocol):
    """The epoch that datanodes are told, and what is made of what they have seen: `EpochService`."""

    def epoch(self) -> int: ...
    def seen(self, node: NodeId, epoch: int, commit: int = 0) -> None: ...


class CoordinatorNews:
    """Made once for a coordinator; `DatanodeService` sends it. Used from one event loop only."""

    def __init__(
        self,
        epochs: ServedEpoch,
        leadership: Leadership,
        *,
        wall_clock: Callable[[], float],
        durable_commit: Callable[[], int] = lambda: 0,
        trust: Callable[[], Trust] = Trust,
    ) -> None:
        """`durable_commit` gives the last commit.

        `trust` gives what gateways verify their callers with: the same object until it changes.
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
        """Return the answer to a heartbeat, with the trust where that has changed."""
        if self.leadership.leads:
            return HeartbeatAck(self.epochs.epoch(), self._wall_clock(), self._durable_commit(), changed, True)
        # The number of a commit is for the leader to say.
        return HeartbeatAck(self.leadership.epoch, self._wall_clock(), 0, changed, False)
