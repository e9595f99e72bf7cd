"""The state of an interval as master state, active and inactive fragment (SMR V-C, Figure 4).

Changes go to the active fragment. A checkpoint swaps it with the inactive fragment, which is empty at that time.
The inactive fragment is sent to the neighbours while changes continue, and is merged into the master state
afterwards. A read returns the latest value of a key: from the active fragment, else the inactive one, else the
master state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Self

import msgspec
import numpy as np

from .tokens import Hashes, Interval, spread

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


class DictTable(KeyedTable):
    """The twin in Python dictionaries, with integer keys: for simulations and small states."""

    def __init__(self) -> None:
        self._master: dict[int, Any] = {}
        self._active: dict[int, Any] = {}
        self._inactive: dict[int, Any] = {}

    def get(self, key: int, default: Any) -> Any:
        for part in (self._active, self._inactive, self._master):
            if key in part:
                return part[key]
        return default

    def put(self, key: int, value: Any) -> None:
        self._active[key] = value

    def items(self) -> dict[int, Any]:
        return self._master | self._inactive | self._active

    @property
    def changed_keys(self) -> int:
        return len(self._inactive)

    @property
    def known_keys(self) -> int:
        return len(self._master)

    def cut(self) -> None:
        assert not self._inactive, "a checkpoint is under way"
        self._active, self._inactive = {}, self._active

    def changes(self) -> Entries:
        return (msgspec.msgpack.encode(self._inactive),)

    def everything(self) -> Entries:
        return (msgspec.msgpack.encode(self._master | self._inactive),)

    def merge(self) -> None:
        self._master.update(self._inactive)
        self._inactive = {}

    def undo_cut(self) -> None:
        self._active = self._inactive | self._active
        self._inactive = {}

    def take(self, entries: Entries, interval: Interval, *, anew: bool) -> None:
        if anew:
            self._master, self._inactive, self._active = {}, {}, {}
        for data in entries:
            found: dict[int, Any] = msgspec.msgpack.decode(data, type=dict[int, Any])
            inside = _inside(found, interval)
            self._master.update(inside)
            for key in inside:
                self._active.pop(key, None)

    def split(self, at: int) -> tuple[DictTable, DictTable]:
        halves = DictTable(), DictTable()
        for name in ("_master", "_inactive", "_active"):
            part = getattr(self, name)
            setattr(halves[0], name, _inside(part, Interval(0, at)))
            setattr(
                halves[1], name, {key: value for key, value in part.items() if key not in getattr(halves[0], name)}
            )
        return halves

    def empty(self) -> DictTable:
        return DictTable()


def _inside(items: dict[int, Any], interval: Interval) -> dict[int, Any]:
    if not items:
        return {}
    places = places_of(items)
    kept = (places >= interval.low) & (places < interval.high)
    return {key: items[key] for key, keep in zip(items, kept, strict=True) if keep}


def places_of(keys: Iterable[int]) -> Hashes:
    """Return the places of integers on the ring."""
    return spread(np.fromiter(keys, np.int64))
