"""The order in which waiting sets are served. Only the changed sets are updated.

The rank of a set is its own value minus an amount that all sets of its writer's rack share. So the sets of each
kind (rack, replication, exclusions) are in a list sorted by value, which changes only with a set's own events. A
walk merges the lists. Values are integers (bytes), so that sums are exact. If there is no room for a set that
excludes no node, there is no room for any set of its kind; a walk can then drop the whole list.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heappush, heapreplace

from peacefs.protocol.values.write_classes import WriteClass

from .ledger import PendingSet


@dataclass(frozen=True, slots=True)
class WaitingKind:
    """The properties that sets in one list share.

    `rack` is that of the writers (None: outside the cluster). `plain` means that no node is excluded. Sets of a
    more urgent class are served first. `small` sets may use more slots than others.
    """

    rack: str | None
    replication: int
    plain: bool
    write_class: WriteClass = WriteClass.BLOCKING
    small: bool = False


@dataclass(slots=True)
class _Entry:
    kind: WaitingKind
    value: int
    pending: PendingSet
    unfinished_bytes: int

    @property
    def key(self) -> tuple[int, int]:
        return self.value, self.pending.order


_Listed = tuple[int, int, PendingSet]


class WaitingOrder:
    """The waiting sets by name, for ExpressPolicy.

    Sets without waiting chunks are not in the order, but their unfinished bytes are counted.
    """

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._lists: dict[WaitingKind, list[_Listed]] = {}
        self._unfinished: dict[tuple[WriteClass, str | None], int] = {}

    def put(self, pending: PendingSet, kind: WaitingKind, value: int) -> None:
        """Add or update a set. Of sets with equal values the older one is first."""
        name = pending.write_set.name
        self.remove(name)
        entry = _Entry(kind, value, pending, pending.unfinished_bytes)
        self._entries[name] = entry
        place = kind.write_class, kind.rack
        self._unfinished[place] = self._unfinished.get(place, 0) + entry.unfinished_bytes
        if pending.waiting:
            insort(self._lists.setdefault(kind, []), (*entry.key, pending))

    def remove(self, name: str) -> None:
        """Remove a set. Succeeds even if the set is unknown."""
        entry = self._entries.pop(name, None)
        if entry is None:
            return
        place = entry.kind.write_class, entry.kind.rack
        self._unfinished[place] -= entry.unfinished_bytes
        if not self._unfinished[place]:
            del self._unfinished[place]
        listed = self._lists.get(entry.kind, [])
        at = bisect_left(listed, entry.key, key=_key)
        if at < len(listed) and _key(listed[at]) == entry.key:
            del listed[at]
            if not listed:
                del self._lists[entry.kind]

    def unfinished(self) -> Mapping[tuple[WriteClass, str | None], int]:
        """Return the bytes, waiting or in flight, of all sets of each class and each rack's writers."""
        return self._unfinished

    def waits(self, write_class: WriteClass) -> bool:
        """Return whether a set of this class or a more urgent one has waiting chunks."""
        return any(kind.write_class <= write_class for kind in self._lists)

    def walk(self, less: Mapping[tuple[WriteClass, str | None], int]) -> Walk:
        """Iterate over the waiting sets, by class and then by value, smallest first.

        The values of sets are reduced by `less` of their class and rack. Sets must not be put or removed during
        the walk.
        """
        return Walk(self._lists, less)


class Walk:
    """Iterates over all waiting sets, except those of dropped kinds."""

    def __init__(
        self, lists: Mapping[WaitingKind, list[_Listed]], less: Mapping[tuple[WriteClass, str | None], int]
    ) -> None:
        self._lists = lists
        self._less = {kind: less.get((kind.write_class, kind.rack), 0) for kind in lists}
        self._dropped: list[WaitingKind] = []
        kinds = list(lists)
        #: One cursor per list: class, value and order of its next entry, number of its kind, index of the entry.
        self._kinds = kinds
        self._heads = [self._head(number, 0) for number in range(len(kinds))]
        heapify(self._heads)
        self._current: tuple[WriteClass, int, int] | None = None
        self._is_dropped = False

    def _head(self, number: int, at: int) -> tuple[WriteClass, int, int, int, int]:
        kind = self._kinds[number]
        value, order, _ = self._lists[kind][at]
        return kind.write_class, value - self._less[kind], order, number, at

    def __iter__(self) -> Iterator[tuple[WaitingKind, PendingSet]]:
        while self._heads:
            write_class, value, order, number, at = self._heads[0]
            kind = self._kinds[number]
            listed = self._lists[kind]
            self._current, self._is_dropped = (write_class, value, order), False
            yield kind, listed[at][2]
            if self._is_dropped:
                self._dropped.append(kind)
            if self._is_dropped or at + 1 == len(listed):
                heappop(self._heads)
            else:
                heapreplace(self._heads, self._head(number, at + 1))

    def drop(self) -> None:
        """Skip all further sets of the kind that was returned last."""
        self._is_dropped = True

    def take_up_again(self) -> None:
        """Stop skipping: from the current position on, also return sets of dropped kinds."""
        assert self._current is not None
        current_class, *current = self._current
        for kind in self._dropped:
            if kind.write_class < current_class:
                continue
            listed, less = self._lists[kind], self._less[kind]
            at = bisect_right(listed, tuple(current), key=partial(_counting, less))
            if at < len(listed):
                heappush(self._heads, self._head(self._kinds.index(kind), at))
        self._dropped.clear()
        self._is_dropped = False


def _counting(less: int, listed: _Listed) -> tuple[int, int]:
    return listed[0] - less, listed[1]


def _key(listed: _Listed) -> tuple[int, int]:
    return listed[0], listed[1]
