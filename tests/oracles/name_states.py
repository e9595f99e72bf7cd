"""A tree of names as HDFS's documentation describes it: what each change does, or which exception it raises.

Paths are tuples of names below one directory. Imports nothing of the product.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

Path = tuple[str, ...]


class Refused(Exception):
    """HDFS refuses the change; `args[0]` is the name of its exception."""


@dataclass
class Entry:
    """A file with its content, or a directory (None)."""

    data: bytes | None = None
    permission: int = 0o755
    owner: str = ""
    group: str = ""
    #: Only `set_times` sets it. Other times come from a clock.
    times: tuple[int, int] | None = None
    replication: int = 0
    attributes: dict[str, bytes] = field(default_factory=dict)
    #: Named users of the ACL, with their permissions.
    acl: dict[str, int] = field(default_factory=dict)
    names_quota: int | None = None
    snapshots: dict[str, dict[Path, Entry]] | None = None

    @property
    def shown_permission(self) -> int:
        """Return the permission as listings show it. With an ACL the group bits are the mask of the ACL."""
        mask = self.permission >> 3 & 7
        for bits in self.acl.values():
            mask |= bits
        return self.permission & ~0o070 | mask << 3


class NameTree:
    """Everything below a directory, by path. The directory itself is the empty path."""

    def __init__(self, owner: str, group: str) -> None:
        self._owner, self._group = owner, group
        self.entries: dict[Path, Entry] = {(): self._new()}

    def _new(self, **fields: object) -> Entry:
        return Entry(owner=self._owner, group=self._group, **fields)  # type: ignore[arg-type]

    def write(self, path: Path, data: bytes, replication: int) -> None:
        self.entries[path] = self._new(data=data, permission=0o644, replication=replication)

    # -- looking -----------------------------------------------------------------------------------

    def find(self, path: Path) -> Entry:
        if path not in self.entries:
            raise Refused("FileNotFoundException")
        return self.entries[path]

    def below(self, path: Path) -> list[Path]:
        return [each for each in self.entries if len(each) > len(path) and each[: len(path)] == path]

    def children(self, path: Path) -> list[str]:
        return sorted(each[-1] for each in self.below(path) if len(each) == len(path) + 1)

    def summary(self, path: Path) -> tuple[int, int, int]:
        """Count directories, files and bytes of a tree, with its top."""
        self.find(path)
        found = [self.entries[each] for each in (path, *self.below(path))]
        files = [each.data for each in found if each.data is not None]
        return len(found) - len(files), len(files), sum(map(len, files))

    # -- changing ----------------------------------------------------------------------------------

    def set(self, path: Path, **fields: object) -> None:
        """Set fields of an entry that exists."""
        there = self.find(path)
        for name, value in fields.items():
            setattr(there, name, value)

    def mkdirs(self, path: Path, permission: int) -> bool:
        for depth in range(len(path) + 1):
            there = self.entries.get(path[:depth])
            if there is not None and there.data is not None:
                raise Refused(
                    "FileAlreadyExistsException" if depth == len(path) else "ParentNotDirectoryException"
                )
        missing = [path[:depth] for depth in range(1, len(path) + 1) if path[:depth] not in self.entries]
        self._charge(path, len(missing))
        for each in missing:
            # The owner can enter and write new parents.
            self.entries[each] = self._new(permission=permission if each == path else permission | 0o300)
        return True

    def _charge(self, path: Path, more: int) -> None:
        for depth in range(len(path)):
            quota = self.entries[path[:depth]].names_quota if path[:depth] in self.entries else None
            if quota is not None and 1 + len(self.below(path[:depth])) + more > quota:
                raise Refused("NSQuotaExceededException")

    def rename(self, source: Path, target: Path, overwrite: bool) -> None:
        self.find(source)
        if target in self.entries:
            if not overwrite:
                raise Refused("FileAlreadyExistsException")
            del self.entries[target]
        for each in (source, *self.below(source)):
            self.entries[target + each[len(source) :]] = self.entries.pop(each)

    def exchange(self, one: Path, other: Path) -> None:
        for each in (one, other):
            self.find(each)
        aside = (*one[:-1], "\0")
        self.rename(one, aside, overwrite=False)
        self.rename(other, one, overwrite=False)
        self.rename(aside, other, overwrite=False)

    def delete(self, path: Path, recursive: bool) -> bool:
        if path not in self.entries:
            return False
        if self.below(path) and not recursive:
            raise Refused("PathIsNotEmptyDirectoryException")
        for each in (path, *self.below(path)):
            del self.entries[each]
        return True

    def copy(self, source: Path, target: Path) -> tuple[int, int, int]:
        summary = self.summary(source)
        for each in (source, *self.below(source)):
            self.entries[target + each[len(source) :]] = copy.deepcopy(self.entries[each])
        return summary

    def set_replication(self, path: Path, replication: int) -> bool:
        if self.entries.get(path, Entry()).data is None:
            return False
        self.entries[path].replication = replication
        return True

    def set_attribute(self, path: Path, name: str, value: bytes, flags: set[str]) -> None:
        there = self.find(path).attributes
        if ("REPLACE" if name in there else "CREATE") not in flags:
            raise Refused("IOException")
        there[name] = value

    def remove_attribute(self, path: Path, name: str) -> None:
        if self.find(path).attributes.pop(name, None) is None:
            raise Refused("IOException")

    def truncate(self, path: Path, length: int) -> bool:
        there = self.find(path)
        assert there.data is not None
        if length > len(there.data):
            raise Refused("HadoopIllegalArgumentException")
        there.data = there.data[:length]
        return True

    def concat(self, target: Path, sources: list[Path]) -> None:
        there = self.find(target)
        if target in sources:
            raise Refused("HadoopIllegalArgumentException")
        assert there.data is not None
        there.data += b"".join(self.entries.pop(each).data or b"" for each in sources)

    # -- snapshots ---------------------------------------------------------------------------------

    def switch_snapshots(self, path: Path, allowed: bool) -> None:
        there = self.find(path)
        if not allowed and there.snapshots:
            raise Refused("SnapshotException")
        there.snapshots = {} if allowed else None

    def _snapshots(self, path: Path) -> dict[str, dict[Path, Entry]]:
        found = self.find(path).snapshots
        if found is None:
            raise Refused("SnapshotException")
        return found

    def take_snapshot(self, path: Path, name: str) -> None:
        below = {each[len(path) :]: self.entries[each] for each in self.below(path)}
        self._snapshots(path)[name] = copy.deepcopy(below)

    def rename_snapshot(self, path: Path, name: str, new_name: str) -> None:
        found = self._snapshots(path)
        if name not in found:
            raise Refused("SnapshotException")
        found[new_name] = found.pop(name)

    def drop_snapshot(self, path: Path, name: str) -> None:
        if self._snapshots(path).pop(name, None) is None:
            raise Refused("SnapshotException")

    def return_to_snapshot(self, path: Path, name: str) -> None:
        for each in self.below(path):
            del self.entries[each]
        for below, entry in self._snapshots(path)[name].items():
            self.entries[path + below] = copy.deepcopy(entry)
