"""Decides which of several coordinators a datanode obeys. Pure; the links call it.

A coordinator leads in an epoch. The datanode obeys the one that claims to lead in the highest epoch heard so far,
including before a restart. It refuses orders of earlier epochs. A deletion ordered earlier may still be under way,
so heartbeats confirm an epoch only when all deletions of earlier epochs have ended.
"""

from __future__ import annotations

from collections import Counter

from peacefs.protocol.messages import ORDERS, DeleteChunks, Message


class Obedience:
    """One datanode's view of who leads. Any object may represent a coordinator."""

    def __init__(self, coordinators: int, epoch_seen: int) -> None:
        """`epoch_seen` is the highest epoch heard before this start."""
        self._is_alone = coordinators == 1
        self.epoch = epoch_seen
        self.leader: object = None
        #: The number of deletion orders under way, by epoch.
        self._deleting: Counter[int] = Counter()

    def heard(self, coordinator: object, epoch: int, *, leads: bool) -> bool:
        """Record a coordinator's claim; return whether this coordinator is to be obeyed."""
        if not leads or (epoch < self.epoch and not self._is_alone):
            if self.leader is coordinator:
                self.leader = None
            return False
        self.leader = coordinator
        self.epoch = max(self.epoch, epoch)
        return True

    def may_order(self, epoch: int) -> bool:
        """Return whether to obey an order of this epoch."""
        # A coordinator of an earlier version sends no epoch, and has no standby.
        return epoch >= self.epoch or (epoch == 0 and self._is_alone)

    def begin(self, message: Message) -> bool:
        """Accept a message, or return False if it must not be obeyed. After a deletion, `end` must follow."""
        if isinstance(message, ORDERS) and not self.may_order(message.epoch):
            return False
        if isinstance(message, DeleteChunks):
            self._deleting[message.epoch] += 1
        return True

    def end(self, message: Message) -> None:
        """Record that an accepted order was executed or has failed."""
        if isinstance(message, DeleteChunks):
            self._deleting[message.epoch] -= 1
            if not self._deleting[message.epoch]:
                del self._deleting[message.epoch]

    @property
    def settled(self) -> int:
        """The epoch to confirm in heartbeats: no deletion that an earlier leader ordered is under way."""
        return min([self.epoch, *self._deleting])
