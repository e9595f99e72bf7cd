"""The interface of the journal, which records on several machines who leads and what was committed.

A journal belongs to one cluster. It contains an epoch, consecutively numbered entries, and the present leader.
Only the owner of the epoch can append an entry: the journal compares the epoch and writes in one step, so a
replaced leader can write nothing more, whatever its clock says. The lease only decides when another coordinator
may try to take the epoch; no promise depends on it.

If an answer is lost, a method raises `JournalUnsure`. The caller repeats the call until it gets an answer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import msgspec


class JournalUnsure(Exception):
    """There was no answer, or the answer does not tell whether the call was carried out. Repeat the same call."""


class JournalRefused(Exception):
    """The journal refuses this coordinator, or cannot do what is asked. Do not repeat the call."""


class JournalFull(Exception):
    """The journal is full: nothing was appended. A later entry may fit."""


class Fenced(Exception):
    """Another coordinator has taken the epoch. This coordinator no longer leads and can write nothing more."""


class JournalIdentity(msgspec.Struct, frozen=True):
    """The cluster that a journal belongs to, and the journal's own id: a new journal has another id."""

    cluster: str
    journal: str


class Member(msgspec.Struct, frozen=True):
    """A coordinator: its address for clients, and its address for datanodes."""

    name: str
    node_address: str = ""


class Standing(msgspec.Struct, frozen=True):
    """The progress that a coordinator has stated."""

    member: Member
    #: The last entry in its store, and the last entry that would survive a power cut.
    applied: int = 0
    synced: int = 0
    #: True if it may take over: its chunks are loaded and its datanodes have reported.
    is_warm: bool = False
    #: Why the coordinator did not start; empty if it runs. If set, ignore the numbers above.
    problem: str = ""


class Entry(NamedTuple):
    """One commit."""

    number: int
    data: bytes


class Look(NamedTuple):
    """What a standby needs to know at one moment: the next entries, who leads, and the epoch."""

    entries: list[Entry]
    leader: Member | None
    epoch: int


class Journal(ABC):
    """One coordinator's client of the journal. Thread-safe.

    Every method raises JournalUnsure if no answer comes in time, and JournalRefused.
    """

    # -- identity ------------------------------------------------------------------------------------

    @abstractmethod
    def identity(self) -> JournalIdentity | None:
        """Return the journal's identity; None if no journal was begun."""

    @abstractmethod
    def begin(self, identity: JournalIdentity) -> JournalIdentity:
        """Begin a journal if there is none. Return the present identity."""

    @abstractmethod
    def discard(self, identity: JournalIdentity) -> None:
        """Remove the journal of this identity with all its entries, so that another can be begun."""

    # -- entries -------------------------------------------------------------------------------------

    @abstractmethod
    def epoch(self) -> int:
        """Return the epoch that may append; 0 before the first."""

    @abstractmethod
    def take(self, old: int, new: int) -> bool:
        """Change the epoch from `old` to `new`, for this coordinator. Return whether it has the epoch `new` now.

        It may have it by an earlier attempt. Two coordinators never have the same epoch.
        """

    @abstractmethod
    def append(self, epoch: int, number: int, data: bytes) -> None:
        """Append an entry if this coordinator has the epoch, or find that the same entry exists.

        Raises Fenced, JournalFull.
        """

    @abstractmethod
    def read(self, after: int, limit: int) -> list[Entry]:
        """Return the entries after a number, at most `limit`, as of one moment."""

    @abstractmethod
    def look(self, after: int, limit: int) -> Look:
        """Return what `read`, `leader` and `epoch` return, as of one moment, in one call."""

    @abstractmethod
    def ends(self) -> tuple[Entry, Entry] | None:
        """Return the first and the last entry; None if there is no entry."""

    @abstractmethod
    def trim(self, below: int) -> None:
        """Remove the entries below a number."""

    # -- who leads -----------------------------------------------------------------------------------

    @abstractmethod
    def campaign(self, me: Member, lease_s: float) -> bool:
        """Become the leader if there is none, until the lease ends. Return whether `me` leads."""

    @abstractmethod
    def renew(self) -> bool:
        """Renew the lease. Return False if it has ended, or there was none."""

    @abstractmethod
    def resign(self) -> None:
        """End the lease, so that another coordinator can lead at once."""

    @abstractmethod
    def leader(self) -> Member | None:
        """Return the leader; None if there is none."""

    @abstractmethod
    def stand(self, standing: Standing, lives_s: float) -> None:
        """State this coordinator's progress. It is forgotten after these seconds without another statement."""

    @abstractmethod
    def standings(self) -> Sequence[Standing]:
        """Return the progress that all coordinators have stated lately."""

    @abstractmethod
    def close(self) -> None: ...
