"""Keeps changed rows in memory until the image has them, and can undo changes.

A change is made here first. It becomes durable when its entry is in the log (`durable`), and later reaches the
image (`imaged`). Until then the row stays in `changed`. Any other row is read from the image, and may be in a
cache.

Used by one thread. Does not depend on a clock, a disk, or the meaning of rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final

from .image_port import Image
from .model import InodeId
from .row_cache import UNKNOWN, Generations, Unknown
from .tables import CHUNK, ENTRY, PAST, SMALL_TABLES, TABLES, Row

_ENTRIES_SWEPT_FROM: Final = 10_000
#: Larger groups in the cache are forgotten when one of their rows changes.
_REGROUPED_MAX: Final = 16

#: What undoes one change: the table, both parts of the key, the former value in `changed`, and the former value in
#: the cache of inodes or names.
Undo = tuple[int, Any, Any, tuple[int, Row | None] | None, Any]

_KEYS = [len(table.keys) for table in TABLES]
_IS_SMALL = [table.is_small for table in TABLES]


class ChangedRows:
    """All rows, those of the image and those that changed since.

    `number` is the entry under construction. `ops` has its changes so far, in the form that the log stores.
    Other classes change rows only through `put`, `delete` and `take_back`.
    """

    def __init__(self, image: Image, number: int, *, rows_max: int) -> None:
        """Begin after entry `number`, the last that the image has. The caller passes all later changes to `put`.

        Each cache keeps about `rows_max` rows of the image.
        """
        self.image = image
        self.number = number + 1
        self.durable = self._imaged = number
        #: The last entry that is not durable and of which a row was read. A caller that wants to know sets it to 0
        #: first.
        self.ahead = 0
        #: False during a request that changes rows: it depends on all earlier changes anyhow.
        self.is_watched = True
        #: Number of calls of `unseal`.
        self.undone = 0
        self.changed: list[dict[Any, Any]] = [{} for _ in TABLES]
        self.ops: list[tuple[int, Row]] = []
        self.undo: list[Undo] = []
        #: Closed entries that the image may lack: their numbers and the changes that undo them.
        self._waiting: deque[tuple[int, list[Undo]]] = deque()
        #: Number of changes in `_waiting`.
        self.rows_waiting = 0
        self.groups: Generations[tuple[int, Any], list[Row]] = Generations(rows_max, lambda rows: len(rows) + 1)
        self.single: Generations[tuple[int, Any], Row | None] = Generations(rows_max)
        self.small: list[dict[Any, Row]] = [{} for _ in TABLES]
        #: By inode, the keys in `changed` at which an entry may name it: table, parent, the rest of the key.
        self._entries_of: dict[InodeId, set[tuple[int, InodeId, Any]]] = {}

    def load(self) -> None:
        """Read the small tables again and clear all caches. The image must have every change."""
        assert not any(self.changed), "rows that the image lacks would be forgotten"
        self.groups.clear()
        self.single.clear()
        for table in SMALL_TABLES:
            keys = len(TABLES[table].keys)
            rows = self.image.query(f"SELECT * FROM {TABLES[table].name}")
            self.small[table] = {row[0] if keys == 1 else row[:keys]: row for row in rows}

    # -- changing ------------------------------------------------------------------------------------

    def put(self, table: int, row: Row, cached: Any = UNKNOWN) -> None:
        """Replace or add a row. `cached` is the former value in the cache of inodes or names, if there was one."""
        keys = _KEYS[table]
        if keys == 1:
            self.put_single(table, row[0], row, cached)
        else:
            self.ops.append((table, row))
            self._note_nested(table, row[0], row[1] if keys == 2 else row[1:3], row, cached)
        if _IS_SMALL[table]:
            self.small[table][row[0] if keys == 1 else row[:2]] = row

    def put_single(self, table: int, key: Any, row: Row, cached: Any = UNKNOWN) -> None:
        """Replace or add a row of a table that is not small and has keys of one part. See `put`."""
        self.ops.append((table, row))
        rows = self.changed[table]
        self.undo.append((table, key, None, rows.get(key), cached))
        rows[key] = (self.number, row)
        if table == CHUNK:
            self.single.forget((table, key))

    def delete(self, table: int, first: Any, second: Any = None, cached: Any = UNKNOWN) -> None:
        """Delete the row of a key, if there is one. `second` is a tuple if the key has three parts."""
        keys = _KEYS[table]
        key: Row
        if keys == 1:
            rows = self.changed[table]
            self.undo.append((table, first, None, rows.get(first), cached))
            rows[first] = (self.number, None)
            if table == CHUNK:
                self.single.forget((table, first))
            key = (first,)
        else:
            self._note_nested(table, first, second, None, cached)
            key = (first, second) if keys == 2 else (first, *second)
        self.ops.append((~table, key))
        if _IS_SMALL[table]:
            self.small[table].pop(first if keys == 1 else key, None)

    def _note_nested(self, table: int, first: Any, second: Any, row: Row | None, cached: Any) -> None:
        rows = self.changed[table]
        inner = rows.get(first)
        if inner is None:
            inner = rows[first] = {}
        self.undo.append((table, first, second, inner.get(second), cached))
        inner[second] = (self.number, row)
        if table == ENTRY or table == ENTRY + PAST:
            if row is not None:
                places = self._entries_of.get(row[4])
                if places is None:
                    self._entries_of[row[4]] = {(table, first, second)}
                else:
                    places.add((table, first, second))
        else:
            self._regroup(table, first, second, row)

    def _regroup(self, table: int, first: Any, second: Any, row: Row | None) -> None:
        """Change a group in the cache along with one of its rows. Forget it if that would take long."""
        rows = self.groups.get((table, first))
        if isinstance(rows, Unknown):
            return
        if len(rows) > _REGROUPED_MAX:
            self.groups.forget((table, first))
        else:
            self.groups.put((table, first), _merged(rows, {second: (self.number, row)}, _KEYS[table]))

    def mark(self) -> tuple[int, int]:
        """Return the present point, for `take_back`."""
        return len(self.undo), len(self.ops)

    def take_back(self, mark: tuple[int, int] = (0, 0)) -> None:
        """Undo the changes that were made since a mark in the entry under construction, newest first."""
        undone, ops = mark
        del self.ops[ops:]
        for change in reversed(self.undo[undone:]):
            self._restore(change)
        del self.undo[undone:]

    def _restore(self, change: Undo) -> None:
        table, first, second, before, cached = change
        if before is not None and before[0] <= self._imaged:
            # By now the image has the former row.
            before = None
        rows = self.changed[table]
        if second is not None:
            rows, first_of_group = rows[first], first
            if before is None:
                del rows[second]
                if not rows:
                    del self.changed[table][first_of_group]
            else:
                rows[second] = before
        elif before is None:
            del rows[first]
        else:
            rows[first] = before
        self._forget(table, first, second, cached)

    def _forget(self, table: int, first: Any, second: Any, cached: Any) -> None:
        """Correct the caches after a row was restored."""
        if TABLES[table].is_small:
            key = first if second is None else (first, second)
            row = self.row(table, first, second)
            if row is None:
                self.small[table].pop(key, None)
            else:
                self.small[table][key] = row
        else:
            self.single.forget((table, first))
            self.groups.forget((table, first))

    # -- entries -------------------------------------------------------------------------------------

    def seal(self) -> list[tuple[int, Row]]:
        """Close the entry under construction, begin the next one, and return the changes of the closed one."""
        ops, self.ops = self.ops, []
        self._waiting.append((self.number, self.undo))
        self.rows_waiting += len(self.undo)
        self.undo = []
        self.number += 1
        return ops

    def unseal(self, number: int) -> None:
        """Undo all entries from `number` on, and the one under construction. None of them may be durable."""
        self.undone += 1
        self.take_back()
        while self._waiting and self._waiting[-1][0] >= number:
            _, undo = self._waiting.pop()
            self.rows_waiting -= len(undo)
            for change in reversed(undo):
                self._restore(change)
        self.number = number

    @property
    def last(self) -> int:
        """The last entry that has changes, closed or under construction."""
        return self.number if self.undo else self.number - 1

    @property
    def is_ahead(self) -> bool:
        """Whether any change is not durable."""
        return self.number > self.durable + 1 or bool(self.undo)

    @property
    def changes_waiting(self) -> int:
        """Number of closed entries that the image may lack."""
        return len(self._waiting)

    def imaged(self, number: int) -> None:
        """Drop the rows of entries up to `number`, which the image has by now."""
        self._imaged = max(self._imaged, number)
        while self._waiting and self._waiting[0][0] <= number:
            _, touched = self._waiting.popleft()
            self.rows_waiting -= len(touched)
            for table, first, second, _, _ in touched:
                rows = self.changed[table]
                if second is None:
                    found = rows.get(first)
                    if found is not None and found[0] <= number:
                        del rows[first]
                    continue
                inner = rows.get(first, NOTHING)
                found = inner.get(second)
                if found is not None and found[0] <= number:
                    del inner[second]
                    if not inner:
                        del rows[first]
        if not self._waiting and not self.undo:
            self._entries_of.clear()
        elif len(self._entries_of) > 2 * self.rows_waiting + _ENTRIES_SWEPT_FROM:
            self._sweep_entries()

    def _sweep_entries(self) -> None:
        """Remove keys from `_entries_of` that are no longer in `changed`."""
        kept: dict[InodeId, set[tuple[int, InodeId, Any]]] = {}
        for table in (ENTRY, ENTRY + PAST):
            for (parent, *rest), row in self.changed_in(table):
                if row is not None:
                    second = rest[0] if table == ENTRY else tuple(rest)
                    kept.setdefault(row[4], set()).add((table, parent, second))
        self._entries_of = kept

    # -- reading -------------------------------------------------------------------------------------

    def row(self, table: int, first: Any, second: Any = None) -> Row | None:
        """Return the row of a key, None if there is none."""
        rows = self.changed[table]
        if second is not None:
            rows, key = rows.get(first, NOTHING), second
        else:
            key = first
        found = rows.get(key)
        if found is not None:
            if found[0] > self.durable:
                self.ahead = max(self.ahead, found[0])
            return found[1]  # type: ignore[no-any-return]
        if second is None:
            return self.image.one(TABLES[table], first)
        if len(TABLES[table].keys) == 2:
            return self.image.one(TABLES[table], first, second)
        return self.image.one(TABLES[table], first, *second)

    def cached_row(self, table: int, first: Any) -> Row | None:
        """Return the row of a one-part key, from the cache if it is there."""
        found = self.changed[table].get(first)
        if found is not None:
            if found[0] > self.durable:
                self.ahead = max(self.ahead, found[0])
            return found[1]  # type: ignore[no-any-return]
        row = self.single.get((table, first))
        if row is UNKNOWN:
            row = self.image.one(TABLES[table], first)
            self.single.put((table, first), row)
        return row  # type: ignore[return-value]

    def small_row(self, table: int, first: Any, second: Any = None) -> Row | None:
        """Return the row of a key in a table that is always in memory."""
        self._look_ahead_at(table, first, second)
        return self.small[table].get(first if second is None else (first, second))

    def small_rows(self, table: int) -> Iterable[Row]:
        """Return all rows of a table that is always in memory, in no particular order."""
        self.look_at_all(table)
        return self.small[table].values()

    def _look_ahead_at(self, table: int, first: Any, second: Any) -> None:
        """Raise `ahead` if the last change of a row is not durable."""
        if self.is_watched and (self.number > self.durable + 1 or self.undo):
            rows = self.changed[table]
            found = rows.get(first) if second is None else rows.get(first, NOTHING).get(second)
            if found is not None and found[0] > self.durable:
                self.ahead = max(self.ahead, found[0])

    def look_at_all(self, table: int) -> None:
        """Raise `ahead` if a table may have a change that is not durable."""
        if self.changed[table] and self.is_ahead:
            self.ahead = self.last

    def is_settled(self, table: int, first: Any) -> bool:
        """Return whether the last change of the row of a one-part key is durable."""
        found = self.changed[table].get(first)
        return found is None or found[0] <= self.durable

    def group(self, table: int, first: Any) -> list[Row]:
        """Return the rows whose key begins with `first`, in the order of their keys. The group must be small."""
        changed = self.changed[table].get(first)
        if changed and self.is_ahead:
            self.ahead = self.last
        rows = self.groups.get((table, first))
        if not isinstance(rows, Unknown):
            return rows
        rows = self.image.group(TABLES[table], first)
        if changed:
            rows = _merged(rows, changed, len(TABLES[table].keys))
        self.groups.put((table, first), rows)
        return rows

    def changed_in(self, table: int) -> Iterator[tuple[tuple[Any, ...], Row | None]]:
        """Yield the key and the row of each change to a nested table that the image may lack."""
        for first, inner in self.changed[table].items():
            for second, (_, row) in inner.items():
                yield (first, *second) if isinstance(second, tuple) else (first, second), row


NOTHING: Final[dict[Any, Any]] = {}


def _merged(rows: list[Row], changed: dict[Any, tuple[int, Row | None]], keys: int) -> list[Row]:
    """Return the rows of a group after its changes, in the order of their keys."""
    found = {row[1] if keys == 2 else row[1:3]: row for row in rows}
    for second, (_, row) in changed.items():
        if row is None:
            found.pop(second, None)
        else:
            found[second] = row
    return [found[second] for second in sorted(found)]
