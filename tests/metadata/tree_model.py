"""A tree of dictionaries that knows HDFS's rules in its own, simpler words."""

from __future__ import annotations

from typing import Any

from peacefs.coordinator.records import RenameMode
from peacefs.protocol.errors import (
    AccessDenied,
    FileAlreadyExists,
    FileNotFound,
    ParentNotDirectory,
    PathIsNotEmptyDirectory,
    PeacefsError,
    RenameRefused,
)

#: A directory is a dictionary, a file the tuple of its chunks' ids.
Tree = dict[str, Any]
Names = tuple[str, ...]


class Refused(Exception):
    """The model's error: names the class that is expected."""

    def __init__(self, error: type[PeacefsError]) -> None:
        self.error = error


class TreeModel:
    """What the namespace should be. Methods answer, or raise Refused, as the operations should."""

    def __init__(self) -> None:
        self.root: Tree = {}

    def at(self, names: Names, through_file: type[PeacefsError]) -> Any:
        """What is there, or None."""
        node: Any = self.root
        for name in names:
            if not isinstance(node, dict):
                raise Refused(through_file)
            node = node.get(name)
            if node is None:
                return None
        return node

    def mkdirs(self, names: Names) -> bool:
        there = self.at(names, ParentNotDirectory)
        if isinstance(there, tuple):
            raise Refused(FileAlreadyExists)
        if there is None:
            self._make_parent(names)[names[-1]] = {}
        return True

    def create(self, names: Names, chunks: tuple[int, ...], overwrite: bool, create_parent: bool) -> None:
        there = self.at(names, ParentNotDirectory)
        if isinstance(there, dict) or (isinstance(there, tuple) and not overwrite):
            raise Refused(FileAlreadyExists)
        if there is None and not create_parent and self.at(names[:-1], ParentNotDirectory) is None:
            raise Refused(FileNotFound)
        self._make_parent(names)[names[-1]] = chunks

    def delete(self, names: Names, recursive: bool) -> bool:
        there = self.at(names, AccessDenied)
        if there is None:
            return False
        if isinstance(there, dict) and there and not recursive:
            raise Refused(PathIsNotEmptyDirectory)
        if not names:
            return False
        del self._make_parent(names)[names[-1]]
        return True

    def rename(self, source: Names, target: Names, mode: RenameMode) -> bool:
        self.at(source, AccessDenied)
        there = self.at(target, ParentNotDirectory)
        if mode is RenameMode.LEGACY:
            return self._move_like_mv(
                source, (*target, source[-1]) if isinstance(there, dict) and source else target
            )
        self._move(source, target, overwrite=mode is RenameMode.OVERWRITE)
        return True

    def _move_like_mv(self, source: Names, target: Names) -> bool:
        """False instead of an error, and never in place of anything; onto itself is no error."""
        try:
            self._move(source, target, overwrite=False)
        except Refused:
            return bool(source) and source == target and self.at(source, AccessDenied) is not None
        return True

    def _move(self, source: Names, target: Names, overwrite: bool) -> None:
        moved, there = self.at(source, AccessDenied), self.at(target, ParentNotDirectory)
        if moved is None:
            raise Refused(FileNotFound)
        if source == target != ():
            raise Refused(FileAlreadyExists)
        if () in (source, target) or target[: len(source)] == source:
            raise Refused(RenameRefused)
        if there is None:
            if self.at(target[:-1], ParentNotDirectory) is None:
                raise Refused(FileNotFound)
        elif isinstance(there, dict) is not isinstance(moved, dict):
            raise Refused(RenameRefused)
        elif not overwrite:
            raise Refused(FileAlreadyExists)
        elif isinstance(there, dict) and there:
            raise Refused(RenameRefused)
        del self._make_parent(source)[source[-1]]
        self._make_parent(target)[target[-1]] = moved

    def _make_parent(self, names: Names) -> Tree:
        node = self.root
        for name in names[:-1]:
            node = node.setdefault(name, {})
        return node


def chunks_of(tree: Tree) -> set[int]:
    """The chunks of all files of a tree."""
    found: set[int] = set()
    for node in tree.values():
        found |= chunks_of(node) if isinstance(node, dict) else set(node)
    return found
