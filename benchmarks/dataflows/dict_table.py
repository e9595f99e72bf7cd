"""The state of an interval of a ring in Python dictionaries, for seeded runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

from peacefs.dataflow.ring.keyed_table import Entries, KeyedTable
from peacefs.dataflow.ring.tokens import Hashes, Interval, spread


class DictTable(KeyedTable):
    """The twin of `PagedTable` in Python dictionaries, with integer keys."""

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
