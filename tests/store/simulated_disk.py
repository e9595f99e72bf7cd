"""A disk in memory that performs the disk effects, with all the failures that real disks may have.

A crash may lose data written since the file's last `Sync`: all of it, its end, or single sectors. It may also undo
the creation, replacement or removal of names since the last `SyncDirectory`. A failed `Sync` behaves as on Linux:
a random part reached the medium, the rest stays readable from memory, and no later `Sync` writes it. All
randomness comes from one `Random`, so a seed replays exactly.

    disk = SimulatedDisk(Random(seed))
    file = disk.perform(fx.OpenFile("/store/a", create=True))     # any of DISK_EFFECTS; raises OSError
    disk.fail(fx.Sync, errno.EIO)                                 # the next one fails
    disk.break_down("/store/b")                                   # nothing below works any more
    disk.crash()                                                  # open files are gone, unsynced data maybe
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from random import Random
from typing import Any

from peacefs.runtime import effects as fx

_SECTOR_BYTES = 512

DISK_EFFECTS = (
    fx.OpenLocalFile,
    fx.AppendToFile,
    fx.ReadPart,
    fx.ReadAt,
    fx.ReadAhead,
    fx.StartWriteback,
    fx.Sync,
    fx.DropCached,
    fx.TruncateFile,
    fx.CloseFile,
    fx.RenameFile,
    fx.SyncDirectory,
    fx.Remove,
    fx.MakeDirectory,
    fx.ListDirectory,
)


@dataclass(frozen=True)
class _Write:
    offset: int
    data: bytes

    def apply(self, content: bytearray) -> None:
        if len(content) < self.offset:
            content.extend(bytes(self.offset - len(content)))
        if len(content) == self.offset:
            content += self.data
        else:
            content[self.offset : self.offset + len(self.data)] = self.data

    def sectors(self) -> list[_Write]:
        starts = range(0, len(self.data), _SECTOR_BYTES)
        return [_Write(self.offset + at, self.data[at : at + _SECTOR_BYTES]) for at in starts]


@dataclass(frozen=True)
class _Truncate:
    length: int

    def apply(self, content: bytearray) -> None:
        del content[self.length :]

    def sectors(self) -> list[_Truncate]:
        return [self]


@dataclass(eq=False)
class _Inode:
    """A file: what a reader sees, what the medium holds, and what is still to be written there."""

    cached: bytearray = field(default_factory=bytearray)
    medium: bytearray = field(default_factory=bytearray)
    pending: list[_Write | _Truncate] = field(default_factory=list)
    #: True while the medium and the pending writes together give what a reader sees.
    is_as_cached: bool = True

    def change(self, operation: _Write | _Truncate) -> None:
        operation.apply(self.cached)
        self.pending.append(operation)

    def sync(self) -> None:
        for operation in self.pending:
            operation.apply(self.medium)
        self.pending.clear()

    def sync_in_part(self, random: Random) -> None:
        """Write a random part of the pending data to the medium, and drop the rest."""
        self.is_as_cached = self.is_as_cached and not self.pending
        parts = [part for operation in self.pending for part in operation.sectors()]
        match random.randrange(4):
            case 0:
                parts = []
            case 1:
                parts = parts[: random.randint(0, len(parts))]
            case 2:
                parts = [part for part in parts if random.random() < 0.5]
        for part in parts:
            part.apply(self.medium)
        self.pending.clear()

    def rot(self, offset: int) -> None:
        self.medium[offset] ^= 1
        self.is_as_cached = False

    def drop_cached(self) -> None:
        if self.is_as_cached:
            return
        self.is_as_cached = True
        self.cached[:] = self.medium
        for operation in self.pending:
            operation.apply(self.cached)


@dataclass(eq=False)
class _Directory:
    """Current names, and the names after a crash that loses all changes."""

    names: dict[str, _Inode | _Directory] = field(default_factory=dict)
    durable: dict[str, _Inode | _Directory] = field(default_factory=dict)

    def sync(self) -> None:
        self.durable = dict(self.names)

    def crash(self, random: Random) -> None:
        for name in sorted(self.names.keys() | self.durable.keys()):
            before, after = self.durable.get(name), self.names.get(name)
            kept = after if random.random() < 0.5 else before
            if kept is None:
                self.names.pop(name, None)
            else:
                self.names[name] = kept
        self.sync()
        for node in self.names.values():
            if isinstance(node, _Directory):
                node.crash(random)
            else:
                node.sync_in_part(random)
                node.drop_cached()


class SimulatedFile(fx.File):
    """An open file; useless after a crash."""

    def __init__(self, path: str, inode: _Inode, boot: int) -> None:
        self.path = path
        self.inode = inode
        self.boot = boot
        self.is_open = True


@dataclass
class _Fault:
    kind: type[fx.Effect]
    code: int
    path: str
    skip: int


class SimulatedDisk:
    """One machine's disk. `capacity_bytes` may change at any time; appends beyond it fail with ENOSPC."""

    def __init__(self, random: Random, capacity_bytes: int = sys.maxsize) -> None:
        self.capacity_bytes = capacity_bytes
        self._random = random
        self._root = _Directory()
        self._boot = 0
        self._faults: list[_Fault] = []
        self._broken: list[str] = []
        self._read_only: list[str] = []
        self._open_files: set[SimulatedFile] = set()
        self._performers: dict[type[fx.Effect], Callable[[Any], Any]] = {
            fx.OpenLocalFile: self._open_file,
            fx.AppendToFile: self._append,
            fx.ReadPart: self._read_part,
            fx.ReadAt: lambda e: bytes(memoryview(self._inode(e.file).cached)[e.offset : e.offset + e.length]),
            fx.ReadAhead: lambda e: None,
            # At a crash, writeback may or may not have happened, as for all pending data.
            fx.StartWriteback: lambda e: None,
            fx.Sync: lambda e: self._inode(e.file).sync(),
            fx.DropCached: lambda e: self._inode(e.file).drop_cached(),
            fx.TruncateFile: lambda e: self._inode(e.file).change(_Truncate(e.length)),
            fx.CloseFile: self._close_file,
            fx.RenameFile: self._rename,
            fx.SyncDirectory: lambda e: self._directory(e.path).sync(),
            fx.Remove: self._remove,
            fx.MakeDirectory: self._make_directory,
            fx.ListDirectory: self._list_directory,
        }

    def perform(self, effect: fx.Effect) -> Any:
        """Perform an effect and return its result. Raises OSError."""
        if isinstance(effect, fx.Sleep):
            return None
        if self._broken and any(_path_of(effect).startswith(broken) for broken in self._broken):
            # To close a file no disk is needed.
            if isinstance(effect, fx.CloseFile):
                return self._close_file(effect)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if (
            self._read_only
            and any(_path_of(effect).startswith(path) for path in self._read_only)
            and _changes_something(effect)
        ):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        fault = self._fault_for(effect) if self._faults else None
        if fault is not None:
            self._leave_traces(effect)
            raise OSError(fault.code, os.strerror(fault.code))
        return self._performers[type(effect)](effect)

    # -- what goes wrong ---------------------------------------------------------------------------

    def crash(self) -> None:
        """Turn the power off and on: open files are gone, and a random part of the unsynced changes."""
        self._boot += 1
        self.heal()
        self._open_files.clear()
        self._root.crash(self._random)

    def fail(self, kind: type[fx.Effect], code: int, *, path: str = "", skip: int = 0) -> None:
        """Let the next effect of this kind on a path that contains `path` fail once, with this errno.

        `skip` lets that many succeed first. A failing append or sync takes effect in part.
        """
        self._faults.append(_Fault(kind, code, path, skip))

    def break_down(self, path: str) -> None:
        """Let everything below `path` fail from now on, until `heal`."""
        self._broken.append(f"{path}/")

    def make_read_only(self, path: str) -> None:
        """Make everything below `path` read-only, until `heal`."""
        self._read_only.append(f"{path}/")

    def heal(self) -> None:
        """Cancel requested failures that have not happened, and repair broken paths."""
        self.fail_no_more()
        self._broken.clear()
        self._read_only.clear()

    def fail_no_more(self) -> None:
        """Cancel requested failures that have not happened. Broken paths stay broken."""
        self._faults.clear()

    def flip_bit(self, path: str, offset: int, *, in_memory_too: bool = True) -> None:
        """Flip a bit on the medium. Memory may hold the right byte until it is read again."""
        inode = self._file(path)
        inode.rot(offset)
        if in_memory_too:
            inode.drop_cached()

    def overwrite(self, path: str, content: bytes) -> None:
        """Put a durable file there without the store."""
        directory, name = self._parent(path)
        directory.names[name] = directory.durable[name] = _Inode(bytearray(content), bytearray(content))

    # -- what is there -----------------------------------------------------------------------------

    @property
    def open_files(self) -> int:
        """Return how many files are open."""
        return len(self._open_files)

    def available_bytes(self) -> int:
        return self.capacity_bytes - sum(len(inode.cached) for _path, inode in _walk("", self._root))

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Return path and content of every file, as a reader sees it."""
        for path, inode in _walk("", self._root):
            yield path, bytes(inode.cached)

    def is_on_medium(self, directory: str, begins: str, offset: int, length: int) -> bool:
        """Return whether the first bytes of a file, named by a prefix, would survive a crash as a reader sees
        them.
        """
        inode, kept = self._directory(directory), self._root
        for part in PurePosixPath(directory).parts[1:]:
            below = kept.durable.get(part)
            if not isinstance(below, _Directory):
                return False
            kept = below
        for name, file in inode.names.items():
            if name.startswith(begins) and isinstance(file, _Inode):
                sees, keeps = file.cached, file.medium
                if offset > 0 or not len(sees) == len(keeps) == length:
                    sees, keeps = sees[offset : offset + length], keeps[offset : offset + length]
                return kept.durable.get(name) is file and sees == keeps and len(sees) == length
        return False

    def share(self, file: fx.File) -> SimulatedFile:
        """Reopen the file for another process. This disk does not count it as open."""
        inode = self._inode(file)
        assert isinstance(file, SimulatedFile)
        return SimulatedFile(file.path, inode, self._boot)

    def read_shared(self, file: SimulatedFile, offset: int, length: int) -> bytes:
        """Read from a shared file. Raises OSError if the disk fails, or its machine has crashed since."""
        if file.boot != self._boot:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        data: bytes = self.perform(fx.ReadAt(file, offset, length))
        return data

    # -- effects -----------------------------------------------------------------------------------

    def _open_file(self, effect: fx.OpenLocalFile) -> SimulatedFile:
        if effect.create:
            directory, name = self._parent(effect.path)
            directory.names[name] = _Inode()
        file = SimulatedFile(effect.path, self._file(effect.path), self._boot)
        self._open_files.add(file)
        return file

    def _read_part(self, effect: fx.ReadPart) -> bytes:
        """Open, read and close. A failing close does not matter, since everything was read."""
        file = self.perform(fx.OpenLocalFile(effect.path, create=False))
        try:
            data: bytes = self.perform(fx.ReadAt(file, effect.offset, effect.length))
            return data
        finally:
            with contextlib.suppress(OSError):
                self.perform(fx.CloseFile(file))

    def _append(self, effect: fx.AppendToFile) -> None:
        inode = self._inode(effect.file)
        data = b"".join(effect.buffers)
        room = len(data) if self.capacity_bytes == sys.maxsize else max(0, self.available_bytes())
        inode.change(_Write(len(inode.cached), data[:room]))
        if room < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _close_file(self, effect: fx.CloseFile) -> None:
        file = effect.file
        self._inode(file)
        assert isinstance(file, SimulatedFile)
        file.is_open = False
        self._open_files.discard(file)

    def _rename(self, effect: fx.RenameFile) -> None:
        source, name = self._parent(effect.source)
        if name not in source.names:
            raise _not_found(effect.source)
        target, new_name = self._parent(effect.target)
        target.names[new_name] = source.names.pop(name)

    def _remove(self, effect: fx.Remove) -> None:
        directory, name = self._parent(effect.path)
        directory.names.pop(name, None)

    def _make_directory(self, effect: fx.MakeDirectory) -> None:
        node = self._root
        for part in PurePosixPath(effect.path).parts[1:]:
            child = node.names.setdefault(part, _Directory())
            if not isinstance(child, _Directory):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), effect.path)
            node = child

    def _list_directory(self, effect: fx.ListDirectory) -> list[tuple[str, int]]:
        names = self._directory(effect.path).names
        return [(n, -1 if isinstance(e, _Directory) else len(e.cached)) for n, e in sorted(names.items())]

    # -- faults ------------------------------------------------------------------------------------

    def _fault_for(self, effect: fx.Effect) -> _Fault | None:
        path = _path_of(effect)
        for fault in self._faults:
            if type(effect) is fault.kind and fault.path in path:
                if fault.skip == 0:
                    self._faults.remove(fault)
                    return fault
                fault.skip -= 1
        return None

    def _leave_traces(self, effect: fx.Effect) -> None:
        """Do in part what an effect does, although it fails."""
        if isinstance(effect, fx.AppendToFile):
            inode = self._inode(effect.file)
            data = b"".join(effect.buffers)
            inode.change(_Write(len(inode.cached), data[: self._random.randint(0, len(data))]))
        elif isinstance(effect, fx.Sync):
            self._inode(effect.file).sync_in_part(self._random)

    # -- looking up --------------------------------------------------------------------------------

    def _inode(self, file: fx.File) -> _Inode:
        assert isinstance(file, SimulatedFile)
        assert file.boot == self._boot, f"{file.path} was opened before the crash"
        assert file.is_open, f"{file.path} has been closed"
        return file.inode

    def _parent(self, path: str) -> tuple[_Directory, str]:
        directory, _, name = path.rpartition("/")
        return self._directory(directory), name

    def _directory(self, path: str) -> _Directory:
        node: _Inode | _Directory = self._root
        for part in filter(None, path.split("/")):
            if not isinstance(node, _Directory) or part not in node.names:
                raise _not_found(path)
            node = node.names[part]
        if not isinstance(node, _Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def _file(self, path: str) -> _Inode:
        directory, name = self._parent(path)
        inode = directory.names.get(name)
        if not isinstance(inode, _Inode):
            raise _not_found(path)
        return inode


def _walk(path: str, directory: _Directory) -> Iterator[tuple[str, _Inode]]:
    for name, node in sorted(directory.names.items()):
        if isinstance(node, _Directory):
            yield from _walk(f"{path}/{name}", node)
        else:
            yield f"{path}/{name}", node


def _changes_something(effect: fx.Effect) -> bool:
    if isinstance(effect, fx.OpenLocalFile):
        return effect.create
    return isinstance(
        effect, fx.AppendToFile | fx.Sync | fx.TruncateFile | fx.RenameFile | fx.Remove | fx.MakeDirectory
    )


def _path_of(effect: Any) -> str:
    if isinstance(effect, fx.RenameFile):
        return effect.target
    file = getattr(effect, "file", None)
    return file.path if isinstance(file, SimulatedFile) else str(getattr(effect, "path", ""))


def _not_found(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
