"""The port behind which the journal lies: who leads, and what was committed, kept by more than one machine.

A journal belongs to one cluster. It holds an epoch, entries in an unbroken series of numbers, and who leads. An
entry is appended only by whoever has the epoch: that comparison and the writing are one step of the journal, so
that a leader that was replaced can write nothing more, whatever its clock says. The lease only decides when
somebody else may try to take the epoch; nothing that is promised rests on it.

An answer that was lost leaves `JournalUnsure`: the same call is made again, until the answer is known.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import msgspec


class JournalUnsure(Exception):
    """No answer came, or none that tells whether it was done. Make the same call again."""


class JournalRefused(Exception):
    """The journal does not let this coordinator in, or cannot do what is asked; trying again does not help."""


class JournalFull(Exception):
    """There is no room in the journal: nothing was appended, and a later entry may be."""


class Fenced(Exception):
    """Another coordinator has taken the epoch: this one leads no longer and may write nothing more."""


class JournalIdentity(msgspec.Struct, frozen=True):
    """The cluster that a journal belongs to, and the journal itself: another one begins with another id."""

    cluster: str
    journal: str


class Member(msgspec.Struct, frozen=True):
    """A coordinator, by the address that clients know it by, and that of its port for datanodes."""

    name: str
    node_address: str = ""


class Standing(msgspec.Struct, frozen=True):
    """The progress of one coordinator, as it states it."""

    member: Member
    #: The last entry in its store, and the last that a power cut cannot take from it.
    applied: int = 0
    synced: int = 0
    #: True when it may take over: its chunks are loaded and its datanodes have reported.
    is_warm: bool = False
    #: Why the coordinator did not start; empty if it runs. If set, ignore the numbers above.
    problem: str = ""


class Entry(NamedTuple):
    """One commit."""

    number: int
    data: bytes


class Look(NamedTuple):
    """The journal at one moment, as a standby needs it: the next entries, who leads, and the epoch."""

    entries: list[Entry]
    leader: Member | None
    epoch: int


class Journal(ABC):
    """One coordinator's way to the journal. Thread-safe.

    Every method raises JournalUnsure when no answer came in time, and JournalRefused.
    """

    # -- whose it is ---------------------------------------------------------------------------------

    @abstractmethod
    def identity(self) -> JournalIdentity | None:
        """Return whose journal this is, None where none was begun."""

    @abstractmethod
    def begin(self, identity: JournalIdentity) -> JournalIdentity:
        """Begin a journal unless there is one; return the identity that it has now."""

    @abstractmethod
    def discard(self, identity: JournalIdentity) -> None:
        """Remove the journal of this identity with all of its entries, so that another may be begun."""

    # -- entries -------------------------------------------------------------------------------------

    @abstractmethod
    def epoch(self) -> int:
        """Return the epoch that may append; 0 before the first."""

    @abstractmethod
    def take(self, old: int, new: int) -> bool:
        """Make `new` the epoch, this coordinator's own, if it is `old` still.

        Return whether it is that now, by this or an earlier try: no two coordinators have one epoch.
        """

    @abstractmethod
    def append(self, epoch: int, number: int, data: bytes) -> None:
        """Append an entry for good if this coordinator has the epoch, or find that the same is there.

        Raises Fenced, JournalFull.
        """

    @abstractmethod
    def read(self, after: int, limit: int) -> list[Entry]:
        """Return the entries behind the one of that number, at most `limit`, as they are at this moment."""

    @abstractmethod
    def look(self, after: int, limit: int) -> Look:
        """Return what `read`, `leader` and `epoch` return, all of one moment, by one call."""

    @abstractmethod
    def ends(self) -> tuple[Entry, Entry] | None:
        """Return the first and the last entry, None where there is none."""

    @abstractmethod
    def trim(self, below: int) -> None:
        """Remove the entries below that number."""

    # -- who leads -----------------------------------------------------------------------------------

    @abstractmethod
    def campaign(self, me: Member, lease_s: float) -> bool:
        """Become the leader unless there is one, until the lease ends. Return whether the leader is `me`."""

    @abstractmethod
    def renew(self) -> bool:
        """Have the lease begin anew; False when it has ended, or there was none."""

    @abstractmethod
    def resign(self) -> None:
        """End the lease: somebody else may lead at once."""

    @abstractmethod
    def leader(self) -> Member | None:
        """Return who leads."""

    @abstractmethod
    def stand(self, standing: Standing, lives_s: float) -> None:
        """State how far this coordinator has come. It is forgotten after so many seconds of silence."""

    @abstractmethod
    def standings(self) -> Sequence[Standing]:
        """Return what all coordinators have stated lately."""

    @abstractmethod
    def close(self) -> None: ...
