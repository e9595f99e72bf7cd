"""A tree of dictionaries with HDFS's rules, written independently."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from peacefs.coordinator.metadata.model import RenameMode
from peacefs.protocol.errors import (
    FileAlreadyExists,
    FileNotFound,
    IllegalChange,
    LeaseExpired,
    ParentNotDirectory,
    PathIsDirectory,
    PathIsNotEmptyDirectory,
    PathThroughFile,
    PeacefsError,
    RenameRefused,
    SnapshotRefused,
)

#: A directory is a dictionary, a file a `File`.
Tree = dict[str, Any]
Names = tuple[str, ...]


@dataclass(eq=False)
class File:
    """A file's chunks, each with its used length, and the number of its lease."""

    pieces: list[tuple[int, int]] = field(default_factory=list)
    lease: int | None = None
    gone: bool = False

    @property
    def length(self) -> int:
        return sum(length for _chunk, length in self.pieces)


class Refused(Exception):
    """An error of the model, named by the expected class."""

    def __init__(self, error: type[PeacefsError]) -> None:
        self.error = error


class TreeModel:
    """A model of the namespace. Methods return, or raise Refused, as the operations should."""

    def __init__(self) -> None:
        self.root: Tree = {}
        #: Directories that allow snapshots, and their snapshots by name. Moved trees stay the same objects.
        self.allowed: list[tuple[Tree, dict[str, Tree]]] = []

    def at(self, names: Names, through_file: type[PeacefsError]) -> Any:
        """Return the entry at a path, or None."""
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
        if isinstance(there, File):
            raise Refused(FileAlreadyExists)
        if there is None:
            self._make_parent(names)[names[-1]] = {}
        return True

    def create(self, names: Names, made: File, overwrite: bool, create_parent: bool) -> None:
        there = self.at(names, ParentNotDirectory)
        if isinstance(there, dict) or (isinstance(there, File) and not overwrite):
            raise Refused(FileAlreadyExists)
        if there is None and not create_parent and self.at(names[:-1], ParentNotDirectory) is None:
            raise Refused(FileNotFound)
        if there is not None:
            there.gone = True
        self._make_parent(names)[names[-1]] = made

    def extendable(self, names: Names) -> File:
        there = self.at(names, FileNotFound)
        if there is None:
            raise Refused(FileNotFound)
        if isinstance(there, dict):
            raise Refused(FileAlreadyExists)
        assert isinstance(there, File)
        return there

    def complete_append(self, file: File, lease: int, pieces: list[tuple[int, int]]) -> None:
        if file.gone:
            raise Refused(FileNotFound)
        if file.lease != lease:
            raise Refused(LeaseExpired)
        file.pieces += pieces
        file.lease = None

    def truncate(self, names: Names, length: int) -> None:
        file = self._file(names)
        if length > file.length:
            raise Refused(IllegalChange)
        file.lease = None
        kept: list[tuple[int, int]] = []
        for chunk, used in file.pieces:
            if length > 0:
                kept.append((chunk, min(used, length)))
            length -= used
        file.pieces = kept

    def concat(self, target: Names, sources: list[Names]) -> None:
        onto = self._file(target)
        for names in sources:
            source = self._file(names)
            if source is onto or source.length == 0:
                raise Refused(IllegalChange)
        if len(set(sources)) < len(sources):
            raise Refused(IllegalChange)
        for names in sources:
            source = self._make_parent(names).pop(names[-1])
            source.gone = True
            onto.pieces += source.pieces
        onto.lease = None

    def _file(self, names: Names) -> File:
        there = self.at(names, PathThroughFile)
        if there is None:
            raise Refused(FileNotFound)
        if isinstance(there, dict):
            raise Refused(PathIsDirectory)
        assert isinstance(there, File)
        return there

    def copy(self, source: Names, target: Names) -> None:
        copied = self._existing(source)
        if len(target) > len(source) and target[: len(source)] == source:
            raise Refused(IllegalChange)
        if self.at(target, ParentNotDirectory) is not None:
            raise Refused(FileAlreadyExists)
        if self.at(target[:-1], ParentNotDirectory) is None:
            raise Refused(FileNotFound)
        made = copy.deepcopy(copied)
        for file in files_of({"": made}):
            file.lease = None
        self._make_parent(target)[target[-1]] = made

    def delete(self, names: Names, recursive: bool) -> bool:
        there = self.at(names, PathThroughFile)
        if there is None:
            return False
        if isinstance(there, dict) and there and not recursive:
            raise Refused(PathIsNotEmptyDirectory)
        if not names:
            return False
        self._refuse_snapshotted(there)
        del self._make_parent(names)[names[-1]]
        for file in files_of({"": there}):
            file.gone = True
        return True

    def rename(self, source: Names, target: Names, mode: RenameMode) -> bool:
        self.at(source, PathThroughFile)
        there = self.at(target, ParentNotDirectory)
        if mode is RenameMode.LEGACY:
            return self._move_like_mv(
                source, (*target, source[-1]) if isinstance(there, dict) and source else target
            )
        self._move(source, target, overwrite=mode is RenameMode.OVERWRITE)
        return True

    def _move_like_mv(self, source: Names, target: Names) -> bool:
        """Return False instead of an error, and never replace anything; renaming onto itself succeeds."""
        try:
            self._move(source, target, overwrite=False)
        except Refused as refused:
            if refused.error is SnapshotRefused:
                raise
            return bool(source) and source == target and self.at(source, PathThroughFile) is not None
        return True

    def _move(self, source: Names, target: Names, overwrite: bool) -> None:
        moved, there = self.at(source, PathThroughFile), self.at(target, ParentNotDirectory)
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
        self._refuse_snapshotted(moved)
        self._refuse_snapshotted(there)
        if isinstance(there, File):
            there.gone = True
        del self._make_parent(source)[source[-1]]
        self._make_parent(target)[target[-1]] = moved

    def allow_snapshots(self, names: Names) -> None:
        directory = self._existing(names)
        if isinstance(directory, File):
            raise Refused(ParentNotDirectory)
        here = [allowed for allowed, _ in self.allowed if _holds(self.root, allowed)]
        if any(
            directory is not other and (_holds(directory, other) or _holds(other, directory)) for other in here
        ):
            raise Refused(SnapshotRefused)
        if not any(directory is other for other in here):
            self.allowed.append((directory, {}))

    def take_snapshot(self, names: Names, name: str) -> None:
        directory = self._existing(names)
        taken = self.snapshots_of(directory)
        if name in taken:
            raise Refused(SnapshotRefused)
        taken[name] = copy.deepcopy(directory)

    def drop_snapshot(self, names: Names, name: str) -> None:
        self.snapshot(names, name)
        del self.snapshots_of(self._existing(names))[name]

    def restore(self, names: Names, name: str) -> None:
        shown = self.snapshot(names, name)
        directory = self._existing(names)
        for child in directory.values():
            self._refuse_snapshotted(child)
        for file in files_of(directory):
            file.gone = True
        directory.clear()
        directory.update(copy.deepcopy(shown))
        for file in files_of(directory):
            file.lease = None

    def snapshot(self, names: Names, name: str) -> Tree:
        taken = self.snapshots_of(self._existing(names))
        if name not in taken:
            raise Refused(SnapshotRefused)
        return taken[name]

    def snapshots_of(self, directory: Tree) -> dict[str, Tree]:
        for allowed, taken in self.allowed:
            if allowed is directory:
                return taken
        raise Refused(SnapshotRefused)

    def all_snapshots(self) -> list[tuple[Names, str, Tree]]:
        """Return directory, name and tree of each snapshot."""
        return [
            (names, name, tree)
            for names, directory in _directories((), self.root)
            for allowed, taken in self.allowed
            if allowed is directory
            for name, tree in taken.items()
        ]

    def _existing(self, names: Names) -> Any:
        there = self.at(names, PathThroughFile)
        if there is None:
            raise Refused(FileNotFound)
        return there

    def _refuse_snapshotted(self, node: Any) -> None:
        if isinstance(node, dict) and any(taken and _holds(node, allowed) for allowed, taken in self.allowed):
            raise Refused(SnapshotRefused)

    def _make_parent(self, names: Names) -> Tree:
        node = self.root
        for name in names[:-1]:
            node = node.setdefault(name, {})
        return node


def _directories(names: Names, tree: Tree) -> Iterator[tuple[Names, Tree]]:
    yield names, tree
    for name, node in tree.items():
        if isinstance(node, dict):
            yield from _directories((*names, name), node)


def _holds(tree: Tree, directory: Tree) -> bool:
    """Return whether a directory is, or lies below, another one."""
    return any(below is directory for _, below in _directories((), tree))


def chunks_of(tree: Tree) -> set[int]:
    """Return the chunks of all files of a tree."""
    return {chunk for file in files_of(tree) for chunk, _length in file.pieces}


def files_of(tree: Tree) -> list[File]:
    """Return all files of a tree."""
    found: list[File] = []
    for node in tree.values():
        found += files_of(node) if isinstance(node, dict) else [node]
    return found
