"""The state of an interval as master state, active and inactive fragment (SMR V-C, Figure 4).

Changes go to the active fragment. A checkpoint swaps it with the inactive fragment, which is empty at that time.
The inactive fragment is sent to the neighbours while changes continue, and is merged into the master state
afterwards. A read returns the latest value of a key: from the active fragment, else the inactive one, else the
master state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

from .tokens import Interval

Entries = tuple[bytes, ...]


class KeyedTable(ABC):
    @abstractmethod
    def cut(self) -> None:
        """Swap the active fragment with the inactive one, which must be empty."""

    @abstractmethod
    def changes(self) -> Entries:
        """Return the inactive fragment as bytes.

        Another thread may call this; nothing changes the fragment meanwhile.
        """

    @abstractmethod
    def everything(self) -> Entries:
        """Return the master state and the inactive fragment as bytes. Another thread may call this."""

    @abstractmethod
    def merge(self) -> None:
        """Merge the inactive fragment into the master state."""

    @abstractmethod
    def undo_cut(self) -> None:
        """Put the inactive fragment back under the active one, because its checkpoint was given up."""

    @abstractmethod
    def take(self, entries: Entries, interval: Interval, *, anew: bool) -> None:
        """Add an owner's entries in an interval to the master state. `anew`: drop the existing ones first."""

    @abstractmethod
    def split(self, at: int) -> tuple[Self, Self]:
        """Return the parts below a place, and from that place on. Readers may still use this table."""

    @abstractmethod
    def empty(self) -> Self:
        """Return an empty table of the same kind."""

    @property
    @abstractmethod
    def changed_keys(self) -> int:
        """The number of keys in the inactive fragment."""

    @property
    @abstractmethod
    def known_keys(self) -> int:
        """The number of keys in the master state."""
