"""The rows of the metadata in memory: those that the image lacks yet, and a bounded cache of those that it has.

A change is made here first. It is durable when the log has its entry (`durable`), and the image has it some time
later (`imaged`); a row stays in `changed` until then. What is not in `changed` is in the image, at whichever
entry that has arrived. So single rows are loaded from it when they are asked for, and may be forgotten again.

Used by one thread. Knows no clock, no disk, and nothing of what rows mean.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Generic, Protocol, TypeVar

from .model import ROOT, Inode, InodeId, InodeKind
from .tables import (
    CHUNK,
    DIRECTORY_KIND,
    ENTRY,
    FILE_KIND,
    INODE,
    LIVE,
    PAST,
    REQUEST,
    SMALL_TABLES,
    TABLES,
    Row,
    Table,
)

#: Roughly what an inode with its name takes in memory.
BYTES_PER_NAME: Final = 700
#: A directory of so many names is loaded as a whole when it is listed.
whole_directory_names_max: Final = 20_000
# So many answers to requests are kept in memory; older ones are looked up in the image.
answers_in_memory_max: Final = 100_000

_ENTRIES_SWEPT_FROM: Final = 10_000

K = TypeVar("K")
V = TypeVar("V")


class _Unknown:
    """The type of what is said where nothing is known, as opposed to None, which is for nothing there."""

    def __repr__(self) -> str:
        return "unknown"


UNKNOWN: Final = _Unknown()
_KINDS = {FILE_KIND: InodeKind.FILE, DIRECTORY_KIND: InodeKind.DIRECTORY}
_KIND_NUMBERS = {kind: number for number, kind in _KINDS.items()}


class Image(Protocol):
    """The rows on the disk, at some entry that is not before the last one that `Rows.imaged` was told of."""

    def one(self, table: Table, *key: Any) -> Row | None:
        """Return the row of a key."""

    def group(self, table: Table, first: Any) -> list[Row]:
        """Return the rows whose key begins with `first`, in the order of their keys."""

    def after(self, table: Table, first: Any, second: Any, limit: int) -> list[Row]:
        """Return up to `limit` rows of a group, those after the second part of a key, in order."""

    def all(self, table: Table, after: Any, limit: int) -> list[Row]:
        """Return up to `limit` rows of a table, those whose first part of the key follows `after`, in order."""

    def query(self, statement: str, *values: Any) -> list[Row]:
        """Return what a statement of SQL gives."""

    def close(self) -> None: ...


class Generations(Generic[K, V]):
    """A cache in two generations: what nobody asks for while the younger one fills up is forgotten."""

    def __init__(self, weight_max: int, weigh: Callable[[V], int] = lambda value: 1) -> None:
        self._weight_max = max(weight_max // 2, 1)
        self._weigh = weigh
        self._young: dict[K, V] = {}
        self._old: dict[K, V] = {}
        self._weight = 0

    def get(self, key: K) -> V | _Unknown:
        found = self._young.get(key, UNKNOWN)
        if found is UNKNOWN and self._old:
            found = self._old.pop(key, UNKNOWN)
            if found is not UNKNOWN:
                self.put(key, found)  # type: ignore[arg-type]
        return found

    def put(self, key: K, value: V) -> None:
        self._young[key] = value
        self.grow(self._weigh(value))

    def grow(self, weight: int) -> None:
        """Count so much more for what is held."""
        self._weight += weight
        if self._weight > self._weight_max:
            self._old, self._young, self._weight = self._young, {}, 0

    def forget(self, key: K) -> None:
        self._young.pop(key, None)
        self._old.pop(key, None)

    def clear(self) -> None:
        self._young.clear()
        self._old.clear()
        self._weight = 0

    def __len__(self) -> int:
        return len(self._young) + len(self._old)


class DirectoryNames:
    """What is known of a directory's names: the inode of each, None for one that is known to be absent.

    With `is_whole` all of its names are there, and no others.
    """

    __slots__ = ("inodes", "is_large", "is_whole", "ordered")

    def __init__(self, *, is_whole: bool) -> None:
        self.inodes: dict[str, InodeId | None] = {}
        self.is_whole = is_whole
        #: It was found to have more names than are loaded at once.
        self.is_large = False
        #: The names in byte order, once somebody has asked for them; only of a whole directory.
        self.ordered: list[str] | None = None

    def set(self, name: str, inode: InodeId | None) -> None:
        if not self.is_whole:
            self.inodes[name] = inode
        elif inode is not None:
            if self.ordered is not None and name not in self.inodes:
                insort(self.ordered, name)
            self.inodes[name] = inode
        elif self.inodes.pop(name, None) is not None and self.ordered is not None:
            del self.ordered[bisect_left(self.ordered, name)]

    def in_order(self) -> list[str]:
        if self.ordered is None:
            self.ordered = sorted(self.inodes)
        return self.ordered


#: How one change is taken back: table, both parts of the key, what `changed` had before, and what the cache of
#: inodes or names had.
Undo = tuple[int, Any, Any, tuple[int, Row | None] | None, Any]

_KEYS = [len(table.keys) for table in TABLES]
_IS_SMALL = [table.is_small for table in TABLES]


class Rows:
    """All rows. `number` is the entry that is being made; `ops` its changes so far, as the log takes them."""

    def __init__(self, image: Image, number: int, *, names_max: int) -> None:
        """`number` is the last entry that the image has; all that comes after it is to be told by `put`."""
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
        self.inodes: Generations[InodeId, Inode | None] = Generations(names_max)
        self.names: Generations[InodeId, DirectoryNames] = Generations(
            names_max, lambda names: len(names.inodes) + 1
        )
        self.groups: Generations[tuple[int, Any], list[Row]] = Generations(
            max(names_max // 4, 1000), lambda rows: len(rows) + 1
        )
        self.places: Generations[InodeId, tuple[InodeId, str] | None] = Generations(max(names_max // 4, 1000))
        self.single: Generations[tuple[int, Any], Row | None] = Generations(max(names_max // 4, 1000))
        self.small: list[dict[Any, Row]] = [{} for _ in TABLES]
        #: Where `changed` may have entries of an inode: table, parent, the rest of the key.
        self._entries_of: dict[InodeId, set[tuple[int, InodeId, Any]]] = {}
        self.answers = Answers(self)
        self.load()

    def load(self) -> None:
        """Read what is always in memory, anew, and forget all else. Nothing has changed that the image lacks."""
        assert not any(self.changed), "rows that the image lacks would be forgotten"
        for cache in (self.inodes, self.names, self.groups, self.places, self.single):
            cache.clear()
        for table in SMALL_TABLES:
            keys = len(TABLES[table].keys)
            rows = self.image.query(f"SELECT * FROM {TABLES[table].name}")
            self.small[table] = {row[0] if keys == 1 else row[:keys]: row for row in rows}
        self.answers.load()

    # -- changing ------------------------------------------------------------------------------------

    def put(self, table: int, row: Row, cached: Any = UNKNOWN) -> None:
        """Replace or add a row. `cached` is what the cache of inodes or names had before, if it had anything."""
        keys = _KEYS[table]
        if keys == 1:
            self._note(table, row[0], row, cached)
        else:
            self._note_nested(table, row[0], row[1] if keys == 2 else row[1:3], row, cached)
        self.ops.append((table, row))
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
        elif table == REQUEST:
            self.answers.take_back(first, is_added=rows[first][1] is not None, before=before)
            return
        elif before is None:
            del rows[first]
        else:
            rows[first] = before
        self._forget(table, first, second, cached)

    def _forget(self, table: int, first: Any, second: Any, cached: Any) -> None:
        """A row is what it was before: set right whatever is kept of it."""
        if table == INODE:
            self.inodes.forget(first)
            if cached is not UNKNOWN:
                self.inodes.put(first, cached)
        elif table == ENTRY:
            names = self.names.get(first)
            self.places.clear()
            if isinstance(names, DirectoryNames):
                if cached is UNKNOWN:
                    self.names.forget(first)
                else:
                    names.set(second, cached)
        elif TABLES[table].is_small:
            key = first if second is None else (first, second)
            row = self.row(table, first, second)
            if row is None:
                self.small[table].pop(key, None)
            else:
                self.small[table][key] = row
        else:
            self.single.forget((table, first))
            self.groups.forget((table, first))

    def take_in(self, table: int, row: Row | None, first: Any, second: Any) -> None:
        """Put or delete a row that a log, or a journal, has brought."""
        if row is None:
            self.delete(table, first, second)
            if table == REQUEST:
                self.answers.deleted_in_log(first)
        else:
            self.put(table, row)
            if table == REQUEST:
                self.answers.found_in_log(row)
        if table == INODE:
            self.inodes.forget(first)
        elif table == ENTRY:
            self.names_of(first).set(second, None if row is None else row[4])
            self.places.clear()

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
                inner = rows.get(first, _NOTHING)
                found = inner.get(second)
                if found is not None and found[0] <= number:
                    del inner[second]
                    if not inner:
                        del rows[first]
        self.answers.shrink()
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
            rows, key = rows.get(first, _NOTHING), second
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
            found = rows.get(first) if second is None else rows.get(first, _NOTHING).get(second)
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
        if not isinstance(rows, _Unknown):
            return rows
        rows = self.image.group(TABLES[table], first)
        if changed:
            rows = _merged(rows, changed, len(TABLES[table].keys))
        self.groups.put((table, first), rows)
        return rows

    def inode(self, number: InodeId) -> Inode | None:
        if self.number > self.durable + 1 or self.undo:
            self._look_ahead_at(INODE, number, None)
        found = self.inodes.get(number)
        if isinstance(found, _Unknown):
            row = self.row(INODE, number)
            found = None if row is None else inode_of(row)
            self.inodes.put(number, found)
        return found

    def keep_inode(self, inode: Inode, *, is_new: bool = False) -> None:
        """Put the row of an inode. What it was is known from `inodes`, or it is new."""
        before = None if is_new else self.inodes.get(inode.inode)
        self.put(INODE, row_of(inode), before)
        self.inodes.put(inode.inode, inode)
        if is_new and inode.kind is InodeKind.DIRECTORY:
            self.names.put(inode.inode, DirectoryNames(is_whole=True))

    def drop_inode(self, number: InodeId) -> None:
        self.delete(INODE, number, None, self.inodes.get(number))
        self.inodes.put(number, None)
        self.names.forget(number)

    def child(self, parent: InodeId, name: str) -> InodeId | None:
        """Return the inode of an entry."""
        if self.number > self.durable + 1 or self.undo:
            self._look_ahead_at(ENTRY, parent, name)
        names = self.names_of(parent)
        found = names.inodes.get(name, UNKNOWN)
        if found is UNKNOWN:
            if names.is_whole:
                return None
            row = self.row(ENTRY, parent, name)
            found = None if row is None else row[4]
            names.inodes[name] = found
            self.names.grow(1)
        return found  # type: ignore[return-value]

    def names_of(self, directory: InodeId) -> DirectoryNames:
        """Return what is known of a directory's names."""
        names = self.names.get(directory)
        if isinstance(names, _Unknown):
            names = DirectoryNames(is_whole=False)
            self.names.put(directory, names)
        return names

    def add_name(self, row: Row) -> None:
        """Put the row of an entry whose name is free."""
        parent, name, inode = row[0], row[1], row[4]
        self.put(ENTRY, row, None)
        self.names_of(parent).set(name, inode)
        self.names.grow(1)
        self.places.put(inode, (parent, name))

    def drop_name(self, parent: InodeId, name: str, inode: InodeId) -> None:
        self.delete(ENTRY, parent, name, inode)
        self.names_of(parent).set(name, None)
        self.places.put(inode, None)

    def place(self, inode: InodeId) -> tuple[InodeId, str] | None:
        """Return the entry that names an inode now, as (parent, name)."""
        found = self.places.get(inode)
        if isinstance(found, _Unknown):
            rows = self.entry_versions(inode)
            live = [row for row in rows if row[2] == LIVE]
            found = (live[0][0], live[0][1]) if live else None
            self.places.put(inode, found)
        if found is not None:
            self._look_ahead_at(ENTRY, *found)
        elif inode != ROOT and self.is_ahead:
            self.ahead = self.last
        return found

    def entry_versions(self, inode: InodeId) -> list[Row]:
        """Return all entries that name an inode, or did, in no order."""
        found = {}
        for row in self.image.query("SELECT * FROM entry WHERE inode = ?", inode):
            table, second = (ENTRY, row[1]) if row[2] == LIVE else (ENTRY + PAST, row[1:3])
            if second not in self.changed[table].get(row[0], _NOTHING):
                found[row[:3]] = row
        for table, parent, second in self._entries_of.get(inode, ()):
            changed = self.changed[table].get(parent, _NOTHING).get(second)
            if changed is not None and changed[1] is not None and changed[1][4] == inode:
                found[changed[1][:3]] = changed[1]
        return list(found.values())

    def whole_directory(self, directory: InodeId, limit: int = whole_directory_names_max) -> DirectoryNames | None:
        """Return all names of a directory; None if it has more than `limit` and is not known as a whole."""
        names = self.names_of(directory)
        if names.is_whole:
            return names
        if names.is_large and limit <= whole_directory_names_max:
            return None
        rows = self.image.after(TABLES[ENTRY], directory, "", limit + 1)
        if len(rows) > limit:
            names.is_large = True
            return None
        whole = DirectoryNames(is_whole=True)
        changed = self.changed[ENTRY].get(directory, _NOTHING)
        whole.inodes = {row[1]: row[4] for row in rows if row[1] not in changed}
        whole.inodes.update({name: row[4] for name, (_, row) in changed.items() if row is not None})
        self.names.put(directory, whole)
        return whole

    def children(self, directory: InodeId, after: str, limit: int) -> list[tuple[str, Inode]]:
        """Return up to `limit` entries of a directory after a name, in byte order, with what they name."""
        names = self.names_after(directory, after, limit)
        if not names:
            return []
        known = self.names_of(directory).inodes
        first = known.get(names[0], UNKNOWN)
        if isinstance(first, int) and self.inodes.get(first) is UNKNOWN:
            self._load_inodes_below(directory, after, names[-1])
        found = []
        for name in names:
            child = self.child(directory, name)
            inode = None if child is None else self.inode(child)
            assert inode is not None, f"{name} in directory {directory} leads nowhere"
            found.append((name, inode))
        return found

    def _load_inodes_below(self, directory: InodeId, after: str, last: str) -> None:
        """Load the inodes of a page of a directory in one statement."""
        statement = (
            f"SELECT i.* FROM entry e CROSS JOIN inode i ON i.inode = e.inode AND i.to_tx = {LIVE}"
            f" WHERE e.parent = ? AND e.name > ? AND e.name <= ? AND e.to_tx = {LIVE}"
        )
        changed = self.changed[INODE]
        for row in self.image.query(statement, directory, after, last):
            if row[0] not in changed and self.inodes.get(row[0]) is UNKNOWN:
                self.inodes.put(row[0], inode_of(row))

    def names_after(self, directory: InodeId, after: str, limit: int) -> list[str]:
        """Return up to `limit` names of a directory after one, in byte order."""
        changed = self.changed[ENTRY].get(directory)
        if changed and self.is_ahead:
            self.ahead = self.last
        names = self.whole_directory(directory)
        if names is not None:
            ordered = names.in_order()
            begin = bisect_right(ordered, after)
            return ordered[begin : begin + limit]
        gone = 0 if changed is None else sum(row is None for _, row in changed.values())
        rows = self.image.after(TABLES[ENTRY], directory, after, limit + gone)
        known = self.names_of(directory)
        for row in rows:
            if changed is None or row[1] not in changed:
                known.inodes.setdefault(row[1], row[4])
        self.names.grow(len(rows))
        found = {row[1] for row in rows}
        # Beyond the last row that was read, names of the image would be missing among those that changed.
        end = rows[-1][1] if len(rows) == limit + gone else None
        for name, (_, row) in () if changed is None else changed.items():
            if row is None:
                found.discard(name)
            elif name > after and (end is None or name <= end):
                found.add(name)
        return sorted(found)[:limit]

    def changed_in(self, table: int) -> Iterator[tuple[tuple[Any, ...], Row | None]]:
        """Return keys and rows of a nested table that the image may lack."""
        for first, inner in self.changed[table].items():
            for second, (_, row) in inner.items():
                yield (first, *second) if isinstance(second, tuple) else (first, second), row


class Answers:
    """The answers to requests: the latest in memory, older ones in the image."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._numbers: dict[str, int] = {}
        self._kept: deque[tuple[int, str]] = deque()
        #: No request id above this one is in the image alone.
        self._image_only_max = ""
        self.first = self.next = 1

    def load(self) -> None:
        self._numbers.clear()
        self._kept.clear()
        query = self._rows.image.query
        ((first, last, largest),) = query(
            "SELECT min(number), max(number), (SELECT max(request) FROM request) FROM request"
        )
        self.first, self.next = first or 1, (last or 0) + 1
        self._image_only_max = largest or ""

    def find(self, request: str) -> Row | None:
        """Return the row of a request id."""
        number = self._numbers.get(request)
        if number is not None:
            return self._rows.row(REQUEST, number)
        if request > self._image_only_max:
            return None
        found = self._rows.image.query("SELECT * FROM request WHERE request = ?", request)
        # One that was forgotten since may still be there.
        return found[0] if found and found[0][0] not in self._rows.changed[REQUEST] else None

    def add(self, request: str, answer: bytes, at_ms: int) -> None:
        number = self.next
        self.next += 1
        self._rows.put(REQUEST, (number, request, answer, at_ms))
        self._numbers[request] = number
        self._kept.append((number, request))

    def found_in_log(self, row: Row) -> None:
        """A row that a log, or a journal, has brought."""
        self.next = max(self.next, row[0] + 1)
        # A coordinator that begins with none numbers them from the first.
        self.first = min(self.first, row[0])
        self._numbers[row[1]] = row[0]
        self._kept.append((row[0], row[1]))

    def deleted_in_log(self, number: int) -> None:
        """A log, or a journal, says that an answer was dropped; the oldest are dropped first."""
        self.first = max(self.first, number + 1)
        while self._kept and self._kept[0][0] <= number:
            dropped, request = self._kept.popleft()
            if self._numbers.get(request) == dropped:
                del self._numbers[request]

    def take_back(self, number: int, *, is_added: bool, before: tuple[int, Row | None] | None) -> None:
        """Undo that an answer was added, or deleted."""
        changed = self._rows.changed[REQUEST]
        if before is None:
            del changed[number]
        else:
            changed[number] = before
        if is_added:
            _, request = self._kept.pop()
            del self._numbers[request]
            self.next = number
        else:
            row = self._rows.row(REQUEST, number)
            assert row is not None, f"answer {number} was deleted, and was not there"
            self._numbers[row[1]] = number
            self.first = min(self.first, number)

    def shrink(self) -> None:
        """Keep no more in memory than there is room for, of those that the image has."""
        while len(self._kept) > answers_in_memory_max and self._kept[0][0] not in self._rows.changed[REQUEST]:
            number, request = self._kept.popleft()
            if self._numbers.get(request) == number:
                del self._numbers[request]
            self._image_only_max = max(self._image_only_max, request)

    def drop_oldest(self, before_ms: int, limit: int, keep: int) -> int:
        """Delete up to `limit` answers given before `before_ms`, the oldest first, never the last `keep`."""
        last = self.next - 1 - keep
        rows = self._rows
        image = rows.image.query(
            "SELECT number, request, at_ms FROM request WHERE number BETWEEN ? AND ? ORDER BY number LIMIT ?",
            *(self.first, last, limit),
        )
        changed = rows.changed[REQUEST]
        gone = {number for number, (_, row) in changed.items() if row is None}
        found = {number: (request, at_ms) for number, request, at_ms in image if number not in gone}
        if len(image) < limit:
            found |= {n: (row[1], row[3]) for n, (_, row) in changed.items() if row is not None and n <= last}
        dropped = 0
        for number in sorted(found)[:limit]:
            request, at_ms = found[number]
            if at_ms >= before_ms:
                break
            rows.delete(REQUEST, number)
            if self._numbers.get(request) == number:
                del self._numbers[request]
            self.first = number + 1
            dropped += 1
        return dropped


_NOTHING: Final[dict[Any, Any]] = {}


def _merged(rows: list[Row], changed: dict[Any, tuple[int, Row | None]], keys: int) -> list[Row]:
    """Return the rows of a group with those that changed, in the order of their keys."""
    found = {row[1] if keys == 2 else row[1:3]: row for row in rows}
    for second, (_, row) in changed.items():
        if row is None:
            found.pop(second, None)
        else:
            found[second] = row
    return [found[second] for second in sorted(found)]


def inode_of(row: Row) -> Inode:
    """Return what a row of the table of inodes says."""
    return Inode(
        *(row[0], _KINDS[row[3]], row[4], row[5], row[6], row[7], row[8], row[9], row[10], row[11]),
        *(row[13], row[14], row[2]),
    )


def row_of(inode: Inode) -> Row:
    """Return the live row of an inode."""
    return (
        *(inode.inode, LIVE, inode.from_tx, _KIND_NUMBERS[inode.kind], inode.permission, inode.owner),
        *(inode.group, inode.modified_ms, inode.accessed_ms, inode.length, inode.block_bytes),
        *(inode.replication, None, inode.acl, inode.attributes_tx),
    )
