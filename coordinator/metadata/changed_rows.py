"""Rows that have changed: in memory until the image has them; and what is needed to take changes back.

A change is made here first. It is durable when the log has its entry (`durable`), and the image has it some time
later (`imaged`); a row stays in `changed` until then. What is not in `changed` is in the image, at whichever
entry that has arrived. So single rows are loaded from it when they are asked for, and may be forgotten again.

Used by one thread. Knows no clock, no disk, and nothing of what rows mean.
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

#: How one change is taken back: table, both parts of the key, what `changed` had before, and what the cache of
#: inodes or names had.
Undo = tuple[int, Any, Any, tuple[int, Row | None] | None, Any]

_KEYS = [len(table.keys) for table in TABLES]
_IS_SMALL = [table.is_small for table in TABLES]


class ChangedRows:
    """All rows. `number` is the entry that is being made; `ops` its changes so far, as the log takes them."""

    def __init__(self, image: Image, number: int, *, rows_max: int) -> None:
        """`number` is the last entry that the image has; all that comes after it is to be told by `put`.

        About `rows_max` rows that the image has are kept of each kind.
        """
        self.image = image
        self.number = number + 1
        self.durable = self._imaged = number
        #: The last entry that is not durable and of which something was looked at, since somebody set this to 0.
        self.ahead = 0
        #: How often entries were undone.
        self.undone = 0
        self.changed: list[dict[Any, Any]] = [{} for _ in TABLES]
        self.ops: list[tuple[int, Row]] = []
        self.undo: list[Undo] = []
        #: The changes of entries that the image is not known to have: their numbers and what they touched.
        self._waiting: deque[tuple[int, list[Undo]]] = deque()
        #: How many changes those are.
        self.rows_waiting = 0
        self.groups: Generations[tuple[int, Any], list[Row]] = Generations(rows_max, lambda rows: len(rows) + 1)
        self.single: Generations[tuple[int, Any], Row | None] = Generations(rows_max)
        self.small: list[dict[Any, Row]] = [{} for _ in TABLES]
        #: Where `changed` may have entries of an inode: table, parent, the rest of the key.
        self._entries_of: dict[InodeId, set[tuple[int, InodeId, Any]]] = {}

    def load(self) -> None:
        """Read what is always in memory, anew, and forget all else. Nothing has changed that the image lacks."""
        assert not any(self.changed), "rows that the image lacks would be forgotten"
        self.groups.clear()
        self.single.clear()
        for table in SMALL_TABLES:
            keys = len(TABLES[table].keys)
            rows = self.image.query(f"SELECT * FROM {TABLES[table].name}")
            self.small[table] = {row[0] if keys == 1 else row[:keys]: row for row in rows}

    # -- changing ------------------------------------------------------------------------------------

    def put(self, table: int, row: Row, cached: Any = UNKNOWN) -> None:
        """Replace or add a row. `cached` is what the cache of inodes or names had before, if it had anything."""
        keys = _KEYS[table]
        self.ops.append((table, row))
        if keys == 1:
            self._note(table, row[0], row, cached)
        else:
            self._note_nested(table, row[0], row[1] if keys == 2 else row[1:3], row, cached)
        if _IS_SMALL[table]:
            self.small[table][row[0] if keys == 1 else row[:2]] = row

    def delete(self, table: int, first: Any, second: Any = None, cached: Any = UNKNOWN) -> None:
        """Delete the row of a key, whether there is one or not. `second` is a tuple where the key has three."""
        keys = _KEYS[table]
        key: Row
        if keys == 1:
            self._note(table, first, None, cached)
            key = (first,)
        else:
            self._note_nested(table, first, second, None, cached)
            key = (first, second) if keys == 2 else (first, *second)
        self.ops.append((~table, key))
        if _IS_SMALL[table]:
            self.small[table].pop(first if keys == 1 else key, None)

    def _note(self, table: int, first: Any, row: Row | None, cached: Any) -> None:
        rows = self.changed[table]
        self.undo.append((table, first, None, rows.get(first), cached))
        rows[first] = (self.number, row)
        if table == CHUNK:
            self.single.forget((table, first))

    def _note_nested(self, table: int, first: Any, second: Any, row: Row | None, cached: Any) -> None:
        rows = self.changed[table]
        inner = rows.get(first)
        if inner is None:
            inner = rows[first] = {}
        self.undo.append((table, first, second, inner.get(second), cached))
        inner[second] = (self.number, row)
        if table == ENTRY or table == ENTRY + PAST:
            if row is not None:
                self._entries_of.setdefault(row[4], set()).add((table, first, second))
        else:
            self.groups.forget((table, first))

    def mark(self) -> tuple[int, int]:
        """Return a place to which `take_back` may go back."""
        return len(self.undo), len(self.ops)

    def take_back(self, mark: tuple[int, int] = (0, 0)) -> None:
        """Undo what the entry under construction has changed since a mark, the newest first."""
        undone, ops = mark
        del self.ops[ops:]
        for change in reversed(self.undo[undone:]):
            self._restore(change)
        del self.undo[undone:]

    def _restore(self, change: Undo) -> None:
        table, first, second, before, cached = change
        if before is not None and before[0] <= self._imaged:
            # The image has it by now.
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
        """A row is what it was before: set right whatever is kept of it."""
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
        """Close the entry under construction; return its changes. The next one begins."""
        ops, self.ops = self.ops, []
        self._waiting.append((self.number, self.undo))
        self.rows_waiting += len(self.undo)
        self.undo = []
        self.number += 1
        return ops

    def unseal(self, number: int) -> None:
        """Undo all entries from `number` on, none of which is durable, and what is under construction."""
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
        """Return the last entry that has changed anything, whether it is closed yet or not."""
        return self.number if self.undo else self.number - 1

    @property
    def is_ahead(self) -> bool:
        """Return whether anything has changed that is not durable."""
        return self.number > self.durable + 1 or bool(self.undo)

    @property
    def changes_waiting(self) -> int:
        """Return how many entries the image is not known to have."""
        return len(self._waiting)

    def imaged(self, number: int, changes_max: int | None = None) -> bool:
        """The image has all entries up to `number`: their rows need not be kept. Return whether more is to do.

        At most about `changes_max` changes at once: call it again then.
        """
        self._imaged = max(self._imaged, number)
        done = 0
        while self._waiting and self._waiting[0][0] <= number:
            if changes_max is not None and done >= changes_max:
                return True
            _, touched = self._waiting.popleft()
            done += len(touched)
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
        return False

    def _sweep_entries(self) -> None:
        """Forget where entries were that the image has by now."""
        kept: dict[InodeId, set[tuple[int, InodeId, Any]]] = {}
        for table in (ENTRY, ENTRY + PAST):
            for (parent, *rest), row in self.changed_in(table):
                if row is not None:
                    second = rest[0] if table == ENTRY else tuple(rest)
                    kept.setdefault(row[4], set()).add((table, parent, second))
        self._entries_of = kept

    # -- reading -------------------------------------------------------------------------------------

    def row(self, table: int, first: Any, second: Any = None) -> Row | None:
        """Return the row of a key."""
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
        """The same of a table whose key has one part, by way of the cache."""
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
        """The same of a table that is in memory as a whole."""
        self._look_ahead_at(table, first, second)
        return self.small[table].get(first if second is None else (first, second))

    def small_rows(self, table: int) -> Iterable[Row]:
        """Return all rows of a table that is in memory as a whole, in no order."""
        self.look_at_all(table)
        return self.small[table].values()

    def _look_ahead_at(self, table: int, first: Any, second: Any) -> None:
        """Note it if the row of a key has a change that is not durable."""
        if self.number > self.durable + 1 or self.undo:
            rows = self.changed[table]
            found = rows.get(first) if second is None else rows.get(first, NOTHING).get(second)
            if found is not None and found[0] > self.durable:
                self.ahead = max(self.ahead, found[0])

    def look_at_all(self, table: int) -> None:
        """Note it if any row of a table may have a change that is not durable."""
        if self.changed[table] and self.is_ahead:
            self.ahead = self.last

    def is_settled(self, table: int, first: Any) -> bool:
        """Return whether the last change of a row, whose key has one part, is durable."""
        found = self.changed[table].get(first)
        return found is None or found[0] <= self.durable

    def group(self, table: int, first: Any) -> list[Row]:
        """Return the rows of a small group, in the order of their keys."""
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
        """Return keys and rows of a nested table that the image may lack."""
        for first, inner in self.changed[table].items():
            for second, (_, row) in inner.items():
                yield (first, *second) if isinstance(second, tuple) else (first, second), row


NOTHING: Final[dict[Any, Any]] = {}


def _merged(rows: list[Row], changed: dict[Any, tuple[int, Row | None]], keys: int) -> list[Row]:
    """Return the rows of a group with those that changed, in the order of their keys."""
    found = {row[1] if keys == 2 else row[1:3]: row for row in rows}
    for second, (_, row) in changed.items():
        if row is None:
            found.pop(second, None)
        else:
            found[second] = row
    return [found[second] for second in sorted(found)]
