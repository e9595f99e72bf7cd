"""Know whether this coordinator leads, and may answer. Pure: `clock` is passed in.

The journal fences commits, so this is about reads: a leader that has been replaced would show outdated state. So a
leader answers only for a limited time after its lease was confirmed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from peacefs.coordinator.journal.port import Member
from peacefs.coordinator.limits import leader_lease_s
from peacefs.protocol.errors import ServiceUnready, Standby

# A leader answers nobody after this many seconds without confirmation of its lease.
leader_silence_max_s: Final = 1.5


class Leadership:
    """One coordinator's knowledge of who leads. Used from one event loop only."""

    def __init__(self, clock: Callable[[], float], me: Member | None) -> None:
        """If `me` is None, there is only one coordinator, which always leads."""
        self.clock = clock
        self.me = me
        self.leads = me is None
        #: The epoch of the leader, if known.
        self.epoch = 0
        self.leader: Member | None = None
        self._seen_s = float("-inf")
        self._confirmed_s = float("-inf")

    @classmethod
    def alone(cls) -> Leadership:
        """Return the leadership of a coordinator without a journal."""
        return cls(lambda: 0.0, None)

    def known_as(self, me: Member) -> None:
        """Set the addresses of this coordinator, once it listens."""
        self.me = me

    def stand_down(self) -> None:
        """Stop answering, because another coordinator is about to lead."""
        self.leads = False
        self._confirmed_s = float("-inf")

    def seen(self, leader: Member | None) -> None:
        """Record the present leader, or None if there is none."""
        self.leader = leader
        self._seen_s = self.clock()

    def confirmed(self, since_s: float) -> None:
        """Note that the lease was renewed by a call that began at this time."""
        self._confirmed_s = max(self._confirmed_s, since_s)

    def begin(self, epoch: int) -> None:
        """Lead from now on, in this epoch."""
        self.leads = True
        self.epoch = epoch
        self.leader = self.me

    @property
    def may_answer(self) -> bool:
        """Return whether no other coordinator can have led for long enough to change anything."""
        if self.me is None:
            return True
        return self.leads and self.clock() - self._confirmed_s < leader_silence_max_s

    @property
    def knows_leader(self) -> bool:
        """Return whether another coordinator was seen to lead a moment ago."""
        if self.leads or self.leader is None or self.leader == self.me:
            return False
        return self.clock() - self._seen_s < leader_lease_s

    def refuse_to_commit(self) -> None:
        """Raise as `refuse_standby` does unless this coordinator leads. The journal decides, not a clock."""
        if not self.leads:
            self.refuse_standby()

    def refuse_standby(self) -> None:
        """Raise Standby while another coordinator leads, ServiceUnready while none does."""
        if self.may_answer:
            return
        if self.knows_leader:
            assert self.leader is not None
            raise Standby(f"this coordinator stands by; {self.leader.name} leads")
        raise ServiceUnready("no coordinator leads at this moment; try again")
