"""The rows of the metadata, with a bounded cache of inodes and names that is loaded on demand.

Used by one thread. Does not depend on a clock or a disk.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, Final

from .answers import Answers
from .changed_rows import NOTHING, ChangedRows, Undo
from .image_port import Image
from .model import ROOT, Inode, InodeId, InodeKind
from .row_cache import UNKNOWN, DirectoryNames, Generations, Unknown
from .tables import DIRECTORY_KIND, ENTRY, FILE_KIND, INODE, LIVE, PAST, REFERENCE, REQUEST, TABLES, Row

#: About the memory that an inode takes with its name.
BYTES_PER_NAME: Final = 700
#: Maximum number of names of a directory that is loaded as a whole when it is listed.
whole_directory_names_max: Final = 20_000

_KINDS = {FILE_KIND: InodeKind.FILE, DIRECTORY_KIND: InodeKind.DIRECTORY}


class Rows(ChangedRows):
    """All rows, with caches for inodes, names and places, which are read most.

    `Reader` and `Transaction` use it. A cache never differs from the rows: each change of an inode or a name goes
    through a method here that changes both, and so does undoing it.
    """

    def __init__(self, image: Image, number: int, *, names_max: int) -> None:
        """Begin after entry `number`, the image's last. Each cache of names and inodes has about `names_max`."""
        super().__init__(image, number, rows_max=max(names_max // 4, 1000))
        self.inodes: Generations[InodeId, Inode | None] = Generations(names_max)
        self.names: Generations[InodeId, DirectoryNames] = Generations(
            names_max, lambda names: len(names.inodes) + 1
        )
        self.places: Generations[InodeId, tuple[InodeId, str] | None] = Generations(max(names_max // 4, 1000))
        self.answers = Answers(self)
        self.load()

    def load(self) -> None:
        super().load()
        self.inodes.clear()
        self.names.clear()
        self.places.clear()
        self.answers.load()

    def imaged(self, number: int) -> None:
        super().imaged(number)
        self.answers.shrink()

    def _restore(self, change: Undo) -> None:
        table, first, _, before, _ = change
        if table == REQUEST:
            if before is not None and before[0] <= self._imaged:
                before = None
            self.answers.take_back(first, is_added=self.changed[table][first][1] is not None, before=before)
        else:
            super()._restore(change)

    def _forget(self, table: int, first: Any, second: Any, cached: Any) -> None:
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
        else:
            super()._forget(table, first, second, cached)

    def take_in(self, table: int, row: Row | None, first: Any, second: Any) -> None:
        """Put or delete a row that was read from the log or the journal."""
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

    def inode(self, number: InodeId) -> Inode | None:
        if self.is_watched and (self.number > self.durable + 1 or self.undo):
            self._look_ahead_at(INODE, number, None)
        found = self.inodes.get(number)
        if isinstance(found, Unknown):
            row = self.row(INODE, number)
            found = None if row is None else inode_of(row)
            self.inodes.put(number, found)
        return found

    def inodes_of(self, numbers: Iterable[InodeId]) -> list[Inode]:
        """Return the inodes of some numbers, all of which must exist."""
        if not (self.is_watched and (self.number > self.durable + 1 or self.undo)):
            young = self.inodes.young
            found = [young.get(number) for number in numbers]
            if all(found):
                return found  # type: ignore[return-value]
        return [inode for number in numbers if (inode := self.inode(number)) is not None]

    def keep_inode(self, inode: Inode, *, is_new: bool = False) -> None:
        """Put the row of an inode. Unless `is_new`, its former state should be in `inodes`."""
        number = inode.inode
        self.put_single(INODE, number, row_of(inode), None if is_new else self.inodes.get(number))
        self.inodes.put(number, inode)
        if is_new:
            # Nothing of a new inode is in the image.
            if inode.kind is InodeKind.DIRECTORY:
                self.names.put(number, DirectoryNames(is_whole=True))
            else:
                self.groups.put((REFERENCE, number), [])

    def drop_inode(self, number: InodeId) -> None:
        self.delete(INODE, number, None, self.inodes.get(number))
        self.inodes.put(number, None)
        self.names.forget(number)

    def follow(self, root: InodeId, names: Sequence[str]) -> list[InodeId]:
        """Follow names from `root`, as far as they exist. Return the inode numbers on the way, with `root`."""
        passed: list[Any] = [root]
        found: Any = root
        if not (self.is_watched and (self.number > self.durable + 1 or self.undo)):
            young = self.names.young
            try:
                for name in names:
                    found = young[found].inodes[name]
                    passed.append(found)
                if found is not None:
                    return passed
            except KeyError:
                # A name or directory is not in the younger generation, or None ended the way.
                pass
            if passed[-1] is None:
                passed.pop()
        for name in names[len(passed) - 1 :]:
            found = self.child(passed[-1], name)
            if found is None:
                break
            passed.append(found)
        return passed

    def child(self, parent: InodeId, name: str) -> InodeId | None:
        """Return the inode number of a name in a directory, None if there is no such name."""
        if self.is_watched and (self.number > self.durable + 1 or self.undo):
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
        """Return the cached names of a directory."""
        names = self.names.get(directory)
        if isinstance(names, Unknown):
            names = DirectoryNames(is_whole=False)
            self.names.put(directory, names)
        return names

    def add_name(self, row: Row) -> bool:
        """Put the row of an entry. If its name is taken, do nothing and return False."""
        parent, name, inode = row[0], row[1], row[4]
        names = self.names_of(parent)
        if (names.inodes.get(name) if names.is_whole else self.child(parent, name)) is not None:
            return False
        self.ops.append((ENTRY, row))
        self._note_nested(ENTRY, parent, name, row, None)
        names.set(name, inode)
        self.names.grow(1)
        self.places.put(inode, (parent, name))
        return True

    def drop_name(self, parent: InodeId, name: str, inode: InodeId) -> None:
        self.delete(ENTRY, parent, name, inode)
        self.names_of(parent).set(name, None)
        self.places.put(inode, None)

    def place(self, inode: InodeId) -> tuple[InodeId, str] | None:
        """Return the entry of an inode as (parent, name), None if it has none."""
        found = self.places.get(inode)
        if isinstance(found, Unknown):
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
        """Return all entries of an inode, with retired ones, in no particular order."""
        found = {}
        for row in self.image.query("SELECT * FROM entry WHERE inode = ?", inode):
            table, second = (ENTRY, row[1]) if row[2] == LIVE else (ENTRY + PAST, row[1:3])
            if second not in self.changed[table].get(row[0], NOTHING):
                found[row[:3]] = row
        for table, parent, second in self._entries_of.get(inode, ()):
            changed = self.changed[table].get(parent, NOTHING).get(second)
            if changed is not None and changed[1] is not None and changed[1][4] == inode:
                found[changed[1][:3]] = changed[1]
        return list(found.values())

    def whole_directory(self, directory: InodeId, limit: int = whole_directory_names_max) -> DirectoryNames | None:
        """Return all names of a directory. None if it has more than `limit` and they are not in memory."""
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
        changed = self.changed[ENTRY].get(directory, NOTHING)
        whole.inodes = {row[1]: row[4] for row in rows if row[1] not in changed}
        whole.inodes.update({name: row[4] for name, (_, row) in changed.items() if row is not None})
        self.names.put(directory, whole)
        return whole

    def children(self, directory: InodeId, after: str, limit: int) -> list[tuple[str, Inode]]:
        """Return up to `limit` names of a directory that follow `after`, with their inodes, in byte order."""
        names = self.names_after(directory, after, limit)
        if not names:
            return []
        known = self.names_of(directory).inodes
        first = known.get(names[0], UNKNOWN)
        if isinstance(first, int) and self.inodes.get(first) is UNKNOWN:
            self.load_inodes_below(directory, after, names[-1])
        found = []
        for name in names:
            child = self.child(directory, name)
            inode = None if child is None else self.inode(child)
            assert inode is not None, f"{name} in directory {directory} leads nowhere"
            found.append((name, inode))
        return found

    def load_inodes_below(self, directory: InodeId, after: str, last: str) -> None:
        """Load the inodes of a page of a directory with one SQL statement."""
        statement = (
            f"SELECT i.* FROM entry e CROSS JOIN inode i ON i.inode = e.inode AND i.to_tx = {LIVE}"
            f" WHERE e.parent = ? AND e.name > ? AND e.name <= ? AND e.to_tx = {LIVE}"
        )
        changed = self.changed[INODE]
        for row in self.image.query(statement, directory, after, last):
            if row[0] not in changed and self.inodes.get(row[0]) is UNKNOWN:
                self.inodes.put(row[0], inode_of(row))

    def names_after(self, directory: InodeId, after: str, limit: int) -> list[str]:
        """Return up to `limit` names of a directory that follow `after`, in byte order."""
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
        # Leave out changed names beyond the last row that was read: names of the image between them were not read.
        end = rows[-1][1] if len(rows) == limit + gone else None
        for name, (_, row) in () if changed is None else changed.items():
            if row is None:
                found.discard(name)
            elif name > after and (end is None or name <= end):
                found.add(name)
        return sorted(found)[:limit]


def inode_of(row: Row) -> Inode:
    """Return the inode of a row."""
    return Inode(
        *(row[0], _KINDS[row[3]], row[4], row[5], row[6], row[7], row[8], row[9], row[10], row[11]),
        *(row[13], row[14], row[2]),
    )


def row_of(inode: Inode) -> Row:
    """Return the live row of an inode."""
    return (
        inode.inode,
        LIVE,
        inode.from_tx,
        DIRECTORY_KIND if inode.kind is InodeKind.DIRECTORY else FILE_KIND,
        inode.permission,
        inode.owner,
        inode.group,
        inode.modified_ms,
        inode.accessed_ms,
        inode.length,
        inode.block_bytes,
        inode.replication,
        None,
        inode.acl,
        inode.attributes_tx,
    )
