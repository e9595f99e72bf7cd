"""The progress that the coordinators of a journal state, and the trimming of entries that all of them have."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

from peacefs.coordinator.journal.port import Look, Member, Standing
from peacefs.coordinator.journal.writer import JournalWriter, position_of
from peacefs.coordinator.metadata.store import Metadata
from peacefs.protocol.limits import MIB
from peacefs.protocol.values.cluster_status import CoordinatorStatus, FailoverStatus

from .leadership import Leadership

# Maximum number of entries, and of their bytes, that a standby reads at once.
journal_read_entries: Final = 256
# Seconds of silence after which a coordinator's statement is forgotten.
standing_lives_s: Final = 10.0
# Bytes of entries to keep even if all coordinators have them, and the maximum size of the journal; beyond that,
# changes are refused.
journal_kept_bytes: Final = 64 * MIB


T = TypeVar("T")


class Run(Protocol):
    """Runs blocking work off the event loop."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


class Standings:
    """The coordinators of one journal, as one of them sees them. Used from one event loop only.

    An entry is trimmed only when it is on the disks of all coordinators that have stated their progress.
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
        #: Number of the last entry seen in the journal.
        self._last_seen = 0
        self._all: tuple[Standing, ...] = ()

    @property
    def all(self) -> tuple[Standing, ...]:
        """Return the coordinators that have stated their progress, with this one."""
        return self._all

    async def state(self, *, is_warm: bool) -> None:
        """State this coordinator's progress, and read the others'."""
        applied, synced = self._metadata.journal_place().number, self._metadata.entry_synced
        standing = Standing(self._me, applied, synced, is_warm)
        await self._run(lambda: self._journal.stand(standing, standing_lives_s))
        self._all = tuple(await self._run(self._journal.standings))

    async def trim(self) -> None:
        """Remove entries that all coordinators have on their disks, except the newest."""
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
        """Note entries that were read."""
        if seen.entries:
            self._last_seen = max(self._last_seen, seen.entries[-1].number)

    @property
    def lag(self) -> int:
        """Return how many entries the store lacks, if known."""
        number = self._metadata.journal_place().number
        self._last_seen = max(self._last_seen, number)
        return self._last_seen - number

    def status(self) -> FailoverStatus:
        """Return who leads, and the progress of the coordinators."""
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
        """Return another coordinator that may lead; None if there is none."""
        for each in self._all:
            if each.member.name != self._me.name and each.is_warm:
                return each.member
        return None
