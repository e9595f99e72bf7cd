"""How far the coordinators of a journal are, as they state it there, and the trimming of what all of them have."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

from peacefs.coordinator.journal.port import Look, Member, Standing
from peacefs.coordinator.journal.writer import JournalWriter, position_of
from peacefs.coordinator.metadata.store import Metadata
from peacefs.protocol.limits import MIB
from peacefs.protocol.values.cluster_status import CoordinatorStatus, FailoverStatus

from .leadership import Leadership

# A standby reads so many entries at once, and no more of them when they have so many bytes.
journal_read_entries: Final = 256
# Coordinators that have not stated how far they are for so long are forgotten.
standing_lives_s: Final = 10.0
# Entries that all coordinators have are trimmed, but for so many bytes; beyond the maximum nothing is changed.
journal_kept_bytes: Final = 64 * MIB


T = TypeVar("T")


class Run(Protocol):
    """Runs what may block, off the event loop."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


class Standings:
    """The coordinators of one journal, as one of them sees them. Used by its failover, from one event loop only.

    An entry is trimmed only when it is on the disks of all coordinators that state themselves.
    """

    def __init__(
        self,
        writer: JournalWriter,
        metadata: Metadata,
        leadership: Leadership,
        run: Run,
        kept_bytes: int = journal_kept_bytes,
    ) -> None:
        assert leadership.me is not None
        self._me: Member = leadership.me
        self._run = run
        self._writer = writer
        self._journal = writer.journal
        self._metadata = metadata
        self._leadership = leadership
        self._kept_bytes = kept_bytes
        #: The number of the last entry that was seen in the journal.
        self._last_seen = 0
        self._all: tuple[Standing, ...] = ()

    @property
    def all(self) -> tuple[Standing, ...]:
        """Return the coordinators that state themselves, this one too."""
        return self._all

    async def state(self, *, is_warm: bool) -> None:
        """Say how far this coordinator has come, and hear of the others."""
        applied, synced = self._metadata.journal_place().number, self._metadata.entry_synced
        standing = Standing(self._me, applied, synced, is_warm)
        await self._run(lambda: self._journal.stand(standing, standing_lives_s))
        self._all = tuple(await self._run(self._journal.standings))

    async def trim(self) -> None:
        """Remove what all coordinators have on their disks, but for the last of it."""
        await self._run(self._trim)

    def _trim(self) -> None:
        ends = self._journal.ends()
        if ends is None:
            return
        first, last = ends
        self._last_seen = last.number
        on_all_disks = min([self._metadata.entry_synced, *(each.synced for each in self._all if not each.problem)])
        above = position_of(last) - self._kept_bytes
        below = first.number
        while position_of(first) < above:
            page = self._journal.read(below - 1, journal_read_entries)
            old = [entry.number for entry in page if position_of(entry) < above and entry.number < on_all_disks]
            if not old:
                break
            below = old[-1] + 1
            if len(old) < len(page):
                break
        if below > first.number:
            self._journal.trim(below)
        self._writer.measure()

    def looked(self, seen: Look) -> None:
        """Take note of entries that were read."""
        if seen.entries:
            self._last_seen = max(self._last_seen, seen.entries[-1].number)

    @property
    def lag(self) -> int:
        """Return how many entries the store lacks, as far as is known."""
        number = self._metadata.journal_place().number
        self._last_seen = max(self._last_seen, number)
        return self._last_seen - number

    def status(self) -> FailoverStatus:
        """Return who leads and how far the coordinators are."""
        leader, lag = self._leadership.leader, self.lag
        return FailoverStatus(
            leads=self._leadership.leads,
            leader="" if leader is None else leader.name,
            journal_entries=self._last_seen,
            journal_bytes=self._writer.size_bytes,
            lag=lag,
            coordinators=[
                CoordinatorStatus(
                    address=each.member.name,
                    leads=each.member == leader,
                    applied=each.applied,
                    lag=0 if each.problem else max(0, self._last_seen - each.applied),
                    is_warm=each.is_warm,
                    problem=each.problem,
                )
                for each in sorted(self._all, key=lambda each: each.member.name)
            ],
        )

    def successor(self) -> Member | None:
        """Return another coordinator that may lead, None where nobody is there."""
        for each in self._all:
            if each.member.name != self._me.name and each.is_warm:
                return each.member
        return None
