"""Reading from a pair: which replica of a producer an input reads, and whom it acknowledges to (Flux 5).

Both replicas of a producer make the same rows with the same numbers. Normally a consumer in slot 0 reads from slot
0 and acknowledges to slot 1, and vice versa. So a row in transit to one consumer also waits in the buffer of the
other producer, which drops it once it has arrived.

- If a replica is gone, or its connection broke, the consumer switches to the other one (`reverse` in the paper).
  That one has the rows that were in transit, and leaves out those that were acknowledged.
- When the slot's own replica is back, the consumer asks the other one to *pause*. The answer comes after all rows
  that it has sent. Then the consumer asks its own replica for the rows after them. So no row in transit is thrown
  away.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .effects import Effect, SendMessage
from .ha_input import HAInput
from .messages import Ack, Pause, Paused, Subscribed, UnitPlacement


class PairReplica(NamedTuple):
    slot: int
    node: str
    incarnation: int
    #: True if it has, or will make, all rows that consumers may lack.
    in_step: bool


def replicas_of(where: UnitPlacement | None) -> list[PairReplica]:
    """Return the existing replicas of a unit."""
    if where is None or where.node is None:
        return []
    found = [PairReplica(where.slot, where.node, where.incarnation, in_step=True)]
    if where.standby is not None:
        standby = where.standby
        in_step = standby.fresh or standby.in_step
        found.append(PairReplica(1 - where.slot, standby.node, standby.incarnation, in_step))
    return found


class PairReading:
    def __init__(self, source: HAInput, slot: int) -> None:
        self._source = source
        self._slot = slot
        self._reads: PairReplica | None = None
        self._since_s = 0.0
        self._pausing = False
        # The replica that had dropped rows that this input needs.
        self._lacking: int | None = None

    def subscribe(self, now_s: float, where: UnitPlacement | None, retry_s: float) -> Iterator[Effect]:
        """Request rows from a replica if none was asked, and return to the slot's own replica when it is back."""
        replicas = [each for each in replicas_of(where) if each.in_step]
        if not replicas:
            return
        if self._reads is None or self._reads not in replicas:
            self._turn_to(now_s, self._choice(replicas))
        elif self._reads.slot != self._slot and not self._pausing and self._source.reads:
            own = [each for each in replicas if each.slot == self._slot and each.incarnation != self._lacking]
            if own and now_s - self._since_s >= retry_s:
                self._pausing = True
                yield SendMessage(self._reads.node, Pause(self._source.stream, self._source.subscription))
        assert self._reads is not None
        wanted = self._source.subscribe(now_s, self._reads.incarnation, retry_s, of_pair=True)
        if wanted is not None:
            yield SendMessage(self._reads.node, wanted)

    def subscribed(self, now_s: float, message: Subscribed, where: UnitPlacement | None) -> None:
        """Note where rows begin. If some are gone that the other replica may have, switch to that replica."""
        if message.subscription != self._source.subscription:
            return
        others = [each for each in replicas_of(where) if each.in_step and each != self._reads]
        if message.lost and self._lacking is None and others and self._reads is not None:
            self._lacking = self._reads.incarnation
            self._turn_to(now_s, others[0])
            return
        self._lacking = None
        self._source.subscribed(message)

    def paused(self, message: Paused) -> None:
        """Note that all rows that the replica has sent are here."""
        if self._pausing and message.subscription == self._source.subscription:
            self._forget()

    def disconnected(self, now_s: float, node: str, where: UnitPlacement | None) -> None:
        """Note that a connection broke, and rows in transit may be lost."""
        if self._reads is None or self._reads.node != node:
            return
        before = self._reads
        self._forget()
        others = [each for each in replicas_of(where) if each.in_step and each != before]
        if others:
            self._turn_to(now_s, others[0])

    @property
    def node(self) -> str | None:
        """The node that this input reads from."""
        return None if self._reads is None else self._reads.node

    def acknowledge(self, where: UnitPlacement | None, ack: Ack, *, is_told_by_sending: bool) -> Iterator[Effect]:
        """Acknowledge rows to all replicas, except the slot's own if sending the rows was enough.

        `is_told_by_sending`: True if it is enough for the consumer to have a row in memory.
        """
        replicas = replicas_of(where)
        reads_own = self._reads is not None and self._reads.slot == self._slot and self._source.reads
        if is_told_by_sending and reads_own and len(replicas) > 1 and all(each.in_step for each in replicas):
            replicas = [each for each in replicas if each.slot != self._slot]
        for each in replicas:
            yield SendMessage(each.node, ack)

    def _choice(self, replicas: list[PairReplica]) -> PairReplica:
        return min(replicas, key=lambda each: (each.incarnation == self._lacking, each.slot != self._slot))

    def _turn_to(self, now_s: float, replica: PairReplica) -> None:
        self._forget()
        self._reads, self._since_s = replica, now_s

    def _forget(self) -> None:
        self._reads, self._pausing = None, False
        self._source.disconnected()
