"""Follows the journal until nobody leads, then takes over and renews the lease.

The order of a takeover makes it safe. First comes the lease, so that only one coordinator tries. Next is the
epoch, after which no other coordinator can append. Then the remaining entries are read; they are the last. The new
leader's first entry is an epoch of the store.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NoReturn, Protocol

from peacefs.coordinator.journal.port import (
    Entry,
    JournalFull,
    JournalRefused,
    JournalUnsure,
    Look,
    Member,
)
from peacefs.coordinator.journal.writer import JournalWriter
from peacefs.coordinator.limits import (
    journal_read_bytes_max,
    journal_unsure_max_s,
    leader_lease_s,
    standby_poll_interval_s,
)
from peacefs.coordinator.metadata.epochs import Begun, draw_epoch
from peacefs.coordinator.metadata.journal_chain import Touched
from peacefs.coordinator.metadata.store import Metadata, MetadataFull
from peacefs.protocol.errors import BadRequest, StartupError

from .leadership import Leadership
from .standings import Run, Standings, journal_kept_bytes, journal_read_entries

leader_renew_interval_s: Final = 0.5
# How often a leader that hands over looks for the new leader, and after how long without one it continues to lead.
hand_over_poll_s: Final = 0.05
hand_over_wait_s: Final = 5.0
# Interval in which coordinators state their progress, and trim entries that all coordinators have.
standing_interval_s: Final = 1.0
journal_trim_interval_s: Final = 5.0


log = logging.getLogger("peacefs.coordinator")


class Follower(Protocol):
    """The coordinator that stands by or leads, as failover uses it."""

    def changed(self, touched: Touched) -> None:
        """Process the changes in another coordinator's entries."""

    def tick(self) -> None:
        """Tick while another coordinator leads."""

    @property
    def is_warm(self) -> bool:
        """Return whether it may take over: it has loaded its chunks."""

    def lead(self, begun: Begun) -> None:
        """Lead from now on, in this epoch."""


class FarBehind(Exception):
    """The journal was trimmed beyond the store's last entry, so the store must be copied anew."""


class Failover:
    """One coordinator's failover: follow, take over, keep leading, hand over. Used from one event loop only.

    Two coordinators never append in the same epoch. Run by the process and by the simulation.
    """

    def __init__(
        self,
        writer: JournalWriter,
        metadata: Metadata,
        leadership: Leadership,
        follower: Follower,
        *,
        run: Run,
        sleep: Callable[[float], Awaitable[None]],
        on_replaced: Callable[[str], NoReturn],
        kept_bytes: int = journal_kept_bytes,
    ) -> None:
        """`on_replaced` ends the process of a leader that was replaced."""
        assert leadership.me is not None
        self._me: Member = leadership.me
        self._writer = writer
        self._journal = writer.journal
        self._metadata = metadata
        self._leadership = leadership
        self._follower = follower
        self._run = run
        self._sleep = sleep
        self._clock = leadership.clock
        self._on_replaced = on_replaced
        self.standings = Standings(writer, metadata, leadership, run, kept_bytes)
        self._stated_s = self._trimmed_s = self._complained_s = float("-inf")
        self._is_handing_over = False

    async def keep(self) -> None:
        """Follow the journal until this coordinator leads, then keep its lease, for as long as it lives.

        Raises FarBehind, JournalDiffers, StartupError, MetadataFault.
        """
        while not self._leadership.leads:
            began_s = self._clock()
            try:
                await self._stand_by()
            except (JournalUnsure, JournalRefused, JournalFull) as problem:
                if not isinstance(problem, JournalFull):
                    self._leadership.seen(None)
                self._complain("the journal cannot be followed: %s", problem)
            except MetadataFull as full:
                self._complain("%s: the journal cannot be followed", full)
            self._follower.tick()
            await self._sleep(max(0.0, began_s + standby_poll_interval_s - self._clock()))
        while True:
            await self._sleep(leader_renew_interval_s)
            if self._is_handing_over:
                continue
            try:
                await self._stay_leader()
            except (JournalUnsure, JournalRefused) as problem:
                self._complain("the lease cannot be renewed: %s", problem)
            except JournalFull as full:
                # Reads go on, and entries that all coordinators have are trimmed.
                self._complain("%s: nothing can be changed", full)

    def _complain(self, text: str, problem: Exception) -> None:
        """Log a lasting problem once in a while."""
        if self._clock() - self._complained_s >= journal_trim_interval_s:
            self._complained_s = self._clock()
            log.warning(text, problem)

    # -- standing by ---------------------------------------------------------------------------------

    async def _stand_by(self) -> None:
        is_behind = True
        while is_behind:
            seen = await self._run(self._look)
            touched = self._metadata.apply(seen.entries) if seen.entries else None
            self._leadership.seen(seen.leader)
            self._leadership.epoch = seen.epoch
            if touched is not None:
                self._follower.changed(touched)
            await self._state()
            is_behind = _is_full(seen.entries)
        if seen.leader is None and self._follower.is_warm and not self._is_handing_over:
            await self._try_to_lead()

    def _look(self) -> Look:
        """Read what is new in the journal. Raises FarBehind."""
        number = self._metadata.journal_place().number
        seen = self._journal.look(self._metadata.read_after, journal_read_entries)
        if not seen.entries:
            return seen
        if seen.entries[0].number > number + 1:
            raise FarBehind(
                f"the journal begins with entry {seen.entries[0].number}, this store ends with {number}"
            )
        self.standings.looked(seen)
        return seen

    async def _catch_up(self) -> None:
        """Apply all new entries."""
        while True:
            seen = await self._run(self._look)
            if not seen.entries:
                return
            self._follower.changed(self._metadata.apply(seen.entries))

    async def _try_to_lead(self) -> None:
        began_s = self._clock()
        if not await self._run(lambda: self._journal.campaign(self._me, leader_lease_s)):
            return
        try:
            begun = await self._take_over()
        except (JournalUnsure, JournalRefused, JournalFull, MetadataFull):
            # Another coordinator may be more successful.
            await self._give_up()
            raise
        if begun is None:
            await self._give_up()
            return
        self._leadership.begin(begun.epoch)
        self._leadership.confirmed(began_s)
        self._follower.lead(begun)
        log.warning("this coordinator, %s, leads now, in epoch %d", self._me.name, begun.epoch)

    async def _take_over(self) -> Begun | None:
        before = await self._run(self._journal.epoch)
        epoch = max(before, self._metadata.epoch) + 1
        if not await self._run(lambda: self._writer.take(before, epoch)):
            return None
        # No other coordinator can append from here on, so these entries are the last.
        await self._catch_up()
        ends = await self._run(self._journal.ends)
        place = self._metadata.journal_place()
        last = 0 if ends is None else ends[1].number
        if last < place.number:
            raise StartupError(
                f"the journal ends with entry {last} and this store has entry {place.number}: etcd was "
                "put back as it once was. Nothing was changed. Restore etcd, or stop all coordinators, "
                "`peacefs metadata discard-journal --journal ...`, and start this one first"
            )
        return draw_epoch(self._metadata, above=epoch - 1)

    async def _give_up(self) -> None:
        try:
            await self._run(self._journal.resign)
        except (JournalUnsure, JournalRefused):
            log.info("the lease could not be released; it will expire")

    # -- leading -------------------------------------------------------------------------------------

    async def _stay_leader(self) -> None:
        began_s = self._clock()
        has_lease = await self._run(self._journal.renew)
        # An earlier holder of the lease may be slow to take the epoch. Whoever has the epoch leads.
        if await self._run(self._journal.epoch) != self._writer.epoch:
            self._on_replaced("another coordinator leads now")
        if not has_lease and not self._is_handing_over:
            # The lease ended while the journal was unreachable, and nobody took it.
            has_lease = await self._run(lambda: self._journal.campaign(self._me, leader_lease_s))
        if self._is_handing_over:
            # A hand-over began meanwhile. The lease is now for another coordinator.
            await self._give_up()
            return
        if has_lease:
            self._leadership.confirmed(began_s)
        if self._clock() - self._trimmed_s >= journal_trim_interval_s:
            self._trimmed_s = self._clock()
            await self.standings.trim()
        await self._state()

    async def _state(self) -> None:
        if self._clock() - self._stated_s >= standing_interval_s:
            self._stated_s = self._clock()
            await self.standings.state(is_warm=self._follower.is_warm)

    # -- handing over --------------------------------------------------------------------------------

    async def hand_over(self) -> Member:
        """Make another coordinator lead, and return it. This coordinator stops answering at once.

        Raises Standby if another coordinator leads already. Raises BadRequest if none is ready, or none led in
        time; this coordinator then continues to lead. If it cannot, the process ends.
        """
        leadership = self._leadership
        if not leadership.leads:
            leadership.refuse_standby()
        successor = self.standings.successor()
        if successor is None:
            raise BadRequest("no standby is ready to lead; `peacefs report` shows them")
        self._is_handing_over = True
        leadership.stand_down()
        await self._give_up()
        leader = await self._await_other(self._clock() + hand_over_wait_s)
        if leader is None:
            raise BadRequest(
                f"{successor.name} did not take over within {hand_over_wait_s:g} s: this coordinator leads on"
            )
        leadership.seen(leader)
        return leader

    async def _await_other(self, give_up_s: float) -> Member | None:
        """Return the new leader; None if this coordinator leads again. Ends the process if neither is possible."""
        while True:
            try:
                leader = await self._run(self._journal.leader)
                is_another = leader is not None and leader != self._me
                if is_another and await self._run(self._journal.epoch) != self._writer.epoch:
                    return leader
                if self._clock() >= give_up_s and await self._lead_on():
                    return None
            except (JournalUnsure, JournalRefused, JournalFull) as problem:
                self._complain("the leadership cannot be handed over: %s", problem)
            if self._clock() >= give_up_s + journal_unsure_max_s:
                self._on_replaced("this coordinator has handed over, and nobody was seen to lead")
            await self._sleep(hand_over_poll_s)

    async def _lead_on(self) -> bool:
        """Lead again, if nobody else led meanwhile."""
        began_s = self._clock()
        if not await self._run(lambda: self._journal.campaign(self._me, leader_lease_s)):
            return False
        if await self._run(self._journal.epoch) != self._writer.epoch:
            await self._give_up()
            self._on_replaced("another coordinator took the epoch, and does not lead")
        self._leadership.begin(self._writer.epoch)
        self._leadership.confirmed(began_s)
        self._is_handing_over = False
        log.warning("no standby took over: this coordinator, %s, continues to lead", self._me.name)
        return True


def _is_full(entries: Sequence[Entry]) -> bool:
    """Return whether there may be more entries than were read at once."""
    read_bytes = sum(len(each.data) for each in entries)
    return len(entries) >= journal_read_entries or read_bytes >= journal_read_bytes_max
