"""A journal in memory, for tests and simulations: the twin of the one in etcd, with faults on request.

`JournalServer` stands for etcd's members, `JournalInMemory` for one coordinator's client. Both live in one
process; a lock makes each call atomic.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from typing import TypeVar

from .port import (
    Entry,
    Fenced,
    Journal,
    JournalFull,
    JournalIdentity,
    JournalUnsure,
    Look,
    Member,
    Standing,
)

T = TypeVar("T")


class Mishap(Enum):
    """What may happen to a call."""

    NONE = "none"
    #: The call never arrived.
    LOST = "lost"
    #: The call was carried out, but its answer was lost.
    ANSWER_LOST = "answer lost"
    #: No answer came, and the call arrives later.
    LATE = "late"


class JournalServer:
    """The state that all coordinators share. `clock` is monotonic."""

    def __init__(self, clock: Callable[[], float], *, entries_max: int | None = None) -> None:
        self.clock = clock
        self.lock = threading.RLock()
        self.identity: JournalIdentity | None = None
        self.epoch = 0
        self.epoch_owner: JournalInMemory | None = None
        #: Entries, each with the epoch that appended it.
        self.entries: dict[int, tuple[int, bytes]] = {}
        self.entries_max = entries_max
        self.leader: tuple[Member, JournalInMemory] | None = None
        self.lease_ends_s = 0.0
        self.standings: dict[str, tuple[float, Standing]] = {}

    def expire(self) -> None:
        """Forget leases and standings that were not renewed in time."""
        now_s = self.clock()
        if self.leader is not None and now_s >= self.lease_ends_s:
            self.leader = None
        for name in [name for name, (ends_s, _) in self.standings.items() if now_s >= ends_s]:
            del self.standings[name]


class JournalInMemory(Journal):
    """One coordinator's client of a `JournalServer`.

    `mishap` decides what happens to each call, by its name; `later` delivers a delayed call.
    """

    def __init__(
        self,
        server: JournalServer,
        mishap: Callable[[str], Mishap] = lambda call: Mishap.NONE,
        later: Callable[[Callable[[], None]], None] = lambda arrive: None,
    ) -> None:
        self._server = server
        self._mishap = mishap
        self._later = later
        self._lease_s = 0.0

    def identity(self) -> JournalIdentity | None:
        return self._call("identity", lambda: self._server.identity)

    def begin(self, identity: JournalIdentity) -> JournalIdentity:
        def begin() -> JournalIdentity:
            self._server.identity = self._server.identity or identity
            return self._server.identity

        return self._call("begin", begin)

    def discard(self, identity: JournalIdentity) -> None:
        def discard() -> None:
            if self._server.identity == identity:
                self._server.identity = None
                self._server.entries.clear()
                self._server.leader = None

        self._call("discard", discard)

    def epoch(self) -> int:
        return self._call("epoch", lambda: self._server.epoch)

    def take(self, old: int, new: int) -> bool:
        def take() -> bool:
            if self._server.epoch == old:
                self._server.epoch, self._server.epoch_owner = new, self
            return self._server.epoch == new and self._server.epoch_owner is self

        return self._call("take", take)

    def append(self, epoch: int, number: int, data: bytes) -> None:
        def append() -> None:
            server = self._server
            if server.epoch != epoch or server.epoch_owner is not self:
                raise Fenced(f"epoch {epoch} is over: epoch {server.epoch} has begun")
            there = server.entries.get(number)
            if there is not None:
                if there != (epoch, data):
                    raise Fenced(f"entry {number} is another's")
                return
            if server.entries_max is not None and len(server.entries) >= server.entries_max:
                raise JournalFull("the journal is full")
            server.entries[number] = epoch, data

        self._call("append", append)

    def read(self, after: int, limit: int) -> list[Entry]:
        return self._call("read", lambda: self._behind(after, limit))

    def look(self, after: int, limit: int) -> Look:
        def look() -> Look:
            server = self._server
            return Look(self._behind(after, limit), server.leader[0] if server.leader else None, server.epoch)

        return self._call("look", look)

    def _behind(self, after: int, limit: int) -> list[Entry]:
        entries = self._server.entries
        numbers = sorted(number for number in entries if number > after)
        return [Entry(number, entries[number][1]) for number in numbers[:limit]]

    def ends(self) -> tuple[Entry, Entry] | None:
        def ends() -> tuple[Entry, Entry] | None:
            entries = self._server.entries
            if not entries:
                return None
            first, last = min(entries), max(entries)
            return Entry(first, entries[first][1]), Entry(last, entries[last][1])

        return self._call("ends", ends)

    def trim(self, below: int) -> None:
        def trim() -> None:
            for number in [number for number in self._server.entries if number < below]:
                del self._server.entries[number]

        self._call("trim", trim)

    def campaign(self, me: Member, lease_s: float) -> bool:
        def campaign() -> bool:
            server = self._server
            self._lease_s = lease_s
            if server.leader is None:
                server.leader = me, self
                server.lease_ends_s = server.clock() + lease_s
            return server.leader == (me, self)

        return self._call("campaign", campaign)

    def renew(self) -> bool:
        def renew() -> bool:
            if not self._leads:
                return False
            self._server.lease_ends_s = self._server.clock() + self._lease_s
            return True

        return self._call("renew", renew)

    def resign(self) -> None:
        def resign() -> None:
            if self._leads:
                self._server.leader = None

        self._call("resign", resign)

    @property
    def _leads(self) -> bool:
        return self._server.leader is not None and self._server.leader[1] is self

    def leader(self) -> Member | None:
        return self._call("leader", lambda: self._server.leader[0] if self._server.leader else None)

    def stand(self, standing: Standing, lives_s: float) -> None:
        def stand() -> None:
            self._server.standings[standing.member.name] = self._server.clock() + lives_s, standing

        self._call("stand", stand)

    def standings(self) -> Sequence[Standing]:
        return self._call("standings", lambda: [each for _, each in self._server.standings.values()])

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def _call(self, name: str, perform: Callable[[], T]) -> T:
        def arrive() -> T:
            with self._server.lock:
                self._server.expire()
                return perform()

        def arrive_late() -> None:
            with suppress(Fenced, JournalFull):
                arrive()

        fate = self._mishap(name)
        if fate is Mishap.NONE:
            return arrive()
        if fate is Mishap.ANSWER_LOST:
            arrive_late()
        elif fate is Mishap.LATE:
            self._later(arrive_late)
        raise JournalUnsure(f"{name}: no answer came ({fate.value})")
