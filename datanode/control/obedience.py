"""Decide which of several coordinators a datanode obeys. Pure: the links ask it.

A coordinator leads in an epoch. The datanode obeys the one that says that it leads in the highest epoch that was
ever heard here, also before a restart; what an earlier one still orders is refused. What was to be deleted before
may be deleted after: the datanode says that it knows an epoch when nothing of an earlier one is left to do.
"""

from __future__ import annotations

from collections import Counter

from peacefs.protocol.messages import ORDERS, DeleteChunks, Message


class Obedience:
    """One datanode's view of who leads. A coordinator is known by any object that stands for it."""

    def __init__(self, coordinators: int, epoch_seen: int) -> None:
        """`epoch_seen` is the highest epoch that was heard before this start."""
        self._is_alone = coordinators == 1
        self.epoch = epoch_seen
        self.leader: object = None
        #: The orders to delete that are under way, of each epoch.
        self._deleting: Counter[int] = Counter()

    def heard(self, coordinator: object, epoch: int, *, leads: bool) -> bool:
        """A coordinator says what it is. Return whether it is the one to be obeyed."""
        if not leads or (epoch < self.epoch and not self._is_alone):
            if self.leader is coordinator:
                self.leader = None
            return False
        self.leader = coordinator
        self.epoch = max(self.epoch, epoch)
        return True

    def may_order(self, epoch: int) -> bool:
        """Return whether an order of this epoch is to be obeyed."""
        # A coordinator of an earlier version, which has no standby, names no epoch.
        return epoch >= self.epoch or (epoch == 0 and self._is_alone)

    def begin(self, message: Message) -> bool:
        """Take a message on; `end` follows where that is to delete. Return False for what is not to be obeyed."""
        if isinstance(message, ORDERS) and not self.may_order(message.epoch):
            return False
        if isinstance(message, DeleteChunks):
            self._deleting[message.epoch] += 1
        return True

    def end(self, message: Message) -> None:
        """Note that orders which were begun have been carried out, or have failed."""
        if isinstance(message, DeleteChunks):
            self._deleting[message.epoch] -= 1
            if not self._deleting[message.epoch]:
                del self._deleting[message.epoch]

    @property
    def settled(self) -> int:
        """Return the epoch to be said in heartbeats: nothing is left to delete that a leader before it ordered."""
        return min([self.epoch, *self._deleting])
