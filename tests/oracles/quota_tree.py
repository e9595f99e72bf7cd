"""A tree with quotas, counted anew for each question. Knows no product.

Written from HDFS's rules. Each operation returns the errors of which one must be raised, or none if it succeeds
and the tree has changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

Path = tuple[str, ...]
Errors = frozenset[str]
DONE: Errors = frozenset()


class Usage(NamedTuple):
    """Number of files and directories, and the bytes of all replicas."""

    names: int
    bytes: int


class QuotaTree:
    """A tree by path: None for directories, the bytes of all replicas for files."""

    def __init__(self) -> None:
        self.nodes: dict[Path, int | None] = {(): None}
        #: Maximum names and bytes by directory; None for no limit.
        self.limits: dict[Path, tuple[int | None, int | None]] = {}
        #: Source and target of each rename.
        self.moves: set[tuple[Path, Path]] = set()

    def below(self, path: Path) -> list[Path]:
        """Return a path and everything below it."""
        return [each for each in self.nodes if each[: len(path)] == path]

    def usage(self, path: Path) -> Usage:
        tree = self.below(path)
        return Usage(len(tree), sum(self.nodes[each] or 0 for each in tree))

    def make(self, path: Path, size: int | None) -> Errors:
        """Make a directory, or a file of a size, with its parents. A file must not exist."""
        if error := self._blocked(path):
            return error
        if path in self.nodes:
            is_there = size is None and self.nodes[path] is None
            return DONE if is_there else frozenset(("FileAlreadyExists",))
        missing = [path[:depth] for depth in range(1, len(path)) if path[:depth] not in self.nodes]
        if errors := self._exceeded((path, Usage(len(missing) + 1, size or 0))):
            return errors
        self.nodes.update(dict.fromkeys(missing))
        self.nodes[path] = size
        return DONE

    def resize(self, path: Path, size: int) -> Errors:
        """Change the bytes of a file that exists."""
        before = self.nodes[path]
        assert before is not None
        if errors := self._exceeded((path, Usage(0, size - before))):
            return errors
        self.nodes[path] = size
        return DONE

    def delete(self, path: Path) -> Errors:
        for each in self.below(path):
            del self.nodes[each]
            self.limits.pop(each, None)
        return DONE

    def rename(self, source: Path, target: Path) -> Errors:
        """Rename a file or directory, without replacing another."""
        if error := self._blocked(source, "PathThroughFile"):
            return error
        if error := self._blocked(target):
            return error
        if source not in self.nodes:
            return frozenset(("FileNotFound",))
        if target == source:
            return frozenset(("FileAlreadyExists",))
        if target[: len(source)] == source:
            return frozenset(("RenameRefused",))
        if target in self.nodes:
            same = (self.nodes[target] is None) is (self.nodes[source] is None)
            return frozenset(("FileAlreadyExists" if same else "RenameRefused",))
        if target[:-1] not in self.nodes:
            return frozenset(("FileNotFound",))
        moved = self.usage(source)
        if errors := self._exceeded((source, Usage(-moved.names, -moved.bytes)), (target, moved)):
            return errors
        self.moves.add((source, target))
        for each in self.below(source):
            place = target + each[len(source) :]
            self.nodes[place] = self.nodes.pop(each)
            if each in self.limits:
                self.limits[place] = self.limits.pop(each)
        return DONE

    def limit(self, path: Path, names: int | None, size: int | None) -> Errors:
        """Set both limits of a directory; None removes one."""
        if error := self._blocked(path, "PathThroughFile"):
            return error
        if path not in self.nodes:
            return frozenset(("FileNotFound",))
        if self.nodes[path] is not None:
            return frozenset(("PathIsNotDirectory",))
        self.limits.pop(path, None)
        if (names, size) != (None, None):
            self.limits[path] = (names, size)
        return DONE

    def _blocked(self, path: Path, error: str = "ParentNotDirectory") -> Errors:
        above = [path[:depth] for depth in range(len(path))]
        return frozenset((error,)) if any(self.nodes.get(each) is not None for each in above) else DONE

    def _exceeded(self, *changes: tuple[Path, Usage]) -> Errors:
        return frozenset(self._exceeded_by(changes))

    def _exceeded_by(self, changes: Iterable[tuple[Path, Usage]]) -> Iterable[str]:
        for directory, limits in self.limits.items():
            found = [
                change
                for path, change in changes
                if len(path) > len(directory) and path[: len(directory)] == directory
            ]
            used = self.usage(directory)
            for error, limit, now, more in (
                ("NamesQuotaExceeded", limits[0], used.names, sum(each.names for each in found)),
                ("BytesQuotaExceeded", limits[1], used.bytes, sum(each.bytes for each in found)),
            ):
                if limit is not None and more > 0 and now + more > limit:
                    yield error
