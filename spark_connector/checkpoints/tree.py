"""The file operations that checkpoints need, on peacefs or on this machine."""

from __future__ import annotations

import errno
import os
import posixpath
import pwd
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from peacefs.client.control.addresses import parse_address
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.protocol.errors import BadRequest, FileAlreadyExists, FileNotFound
from peacefs.protocol.limits import checkpoint_entries_max


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """A file or directory. `length` is in bytes, `modified_ms` in milliseconds since 1970."""

    path: str
    is_directory: bool
    length: int
    modified_ms: int

    @property
    def name(self) -> str:
        return posixpath.basename(self.path)


@dataclass(frozen=True, slots=True)
class Amount:
    files: int
    bytes: int


class FileTree(Protocol):
    """Files to read. Paths are absolute, with slashes."""

    def entries(self, directory: str) -> list[TreeEntry]:
        """List a directory. Raises FileNotFound, also if it is a file."""
        ...

    def open(self, path: str) -> BinaryIO:
        """Open a file. Raises FileNotFound; reading may raise any PeacefsError or OSError."""
        ...

    def identity(self, path: str) -> str:
        """Return an id that a rename keeps and a copy changes; empty if unknown. Raises FileNotFound."""
        ...

    def attribute(self, path: str, name: str) -> bytes | None:
        """Return an extended attribute, or None. Raises FileNotFound."""
        ...

    def uri(self, path: str) -> str:
        """Return the URI by which Spark names a path."""
        ...


class Workspace(FileTree, Protocol):
    """A tree that can be changed. `user` makes the changes."""

    @property
    def user(self) -> str: ...

    def set_attribute(self, path: str, name: str, value: bytes) -> None:
        """Set an extended attribute. Not every file system can: may raise any PeacefsError or OSError."""
        ...

    def exists(self, path: str) -> bool: ...

    def create(self, path: str) -> BinaryIO:
        """Create a file and its directories. The file appears whole when it is closed."""
        ...

    def replace(self, path: str, data: bytes) -> None:
        """Replace a small file's contents."""
        ...

    def copy(self, source: str, target: str) -> Amount:
        """Copy a tree to a new path."""
        ...

    def move(self, source: str, target: str) -> None:
        """Rename a tree atomically. Raises FileAlreadyExists."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file or tree. Succeeds if there is none."""
        ...


class LocalTree:
    """A tree of this machine. A copy copies data, and is no snapshot: files may change meanwhile."""

    def entries(self, directory: str) -> list[TreeEntry]:
        try:
            return [self._entry(path) for path in sorted(Path(directory).iterdir()) if path.exists()]
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFound(f"there is no directory {directory}") from None

    def open(self, path: str) -> BinaryIO:
        try:
            return Path(path).open("rb")
        except (FileNotFoundError, IsADirectoryError):
            raise FileNotFound(f"there is no file {path}") from None

    def identity(self, path: str) -> str:
        """Return device and inode; the file system may reuse the inode of a deleted directory."""
        try:
            found = Path(path).stat()
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFound(f"there is no {path}") from None
        return f"{found.st_dev:x}-{found.st_ino:x}"

    def attribute(self, path: str, name: str) -> bytes | None:
        try:
            return os.getxattr(path, name)
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFound(f"there is no {path}") from None
        except OSError as fault:
            if fault.errno in (errno.ENODATA, errno.EOPNOTSUPP):
                return None
            raise

    def uri(self, path: str) -> str:
        return f"file:{path}"

    @property
    def user(self) -> str:
        try:
            return pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            return str(os.getuid())

    def set_attribute(self, path: str, name: str, value: bytes) -> None:
        os.setxattr(path, name, value)

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def create(self, path: str) -> BinaryIO:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return Path(path).open("xb")

    def replace(self, path: str, data: bytes) -> None:
        staged = Path(f"{path}.peacefs.tmp")
        staged.write_bytes(data)
        staged.replace(path)

    def copy(self, source: str, target: str) -> Amount:
        # New modification times, as in a cluster: the age of a copy tells whether it is still being made.
        shutil.copytree(source, target, symlinks=True, copy_function=shutil.copy)
        copied = list(files_below(self, target))
        return Amount(len(copied), sum(entry.length for entry in copied))

    def move(self, source: str, target: str) -> None:
        if self.exists(target):
            raise FileAlreadyExists(f"{target} exists")
        Path(source).rename(target)

    def remove(self, path: str) -> None:
        if Path(path).is_dir():
            shutil.rmtree(path)
        else:
            Path(path).unlink(missing_ok=True)

    @staticmethod
    def _entry(path: Path) -> TreeEntry:
        stat = path.stat()
        return TreeEntry(path.as_posix(), path.is_dir(), stat.st_size, stat.st_mtime_ns // 1_000_000)


class PeaceTree:
    """A tree of a cluster. A copy copies names only, as a snapshot. Does not own `files`."""

    def __init__(self, files: PeaceFileSystem) -> None:
        self._files = files

    def entries(self, directory: str) -> list[TreeEntry]:
        statuses = self._files.list(directory)
        if len(statuses) == 1 and statuses[0].path == directory:
            raise FileNotFound(f"there is no directory {directory}")
        return [TreeEntry(s.path, s.is_directory, s.length, s.modified_ms) for s in statuses]

    def open(self, path: str) -> BinaryIO:
        return cast(BinaryIO, self._files.open(path))

    def identity(self, path: str) -> str:
        number = self._files.status(path).file_id
        return str(number) if number else ""

    def attribute(self, path: str, name: str) -> bytes | None:
        return self._files.xattrs.get(path).get(name)

    def uri(self, path: str) -> str:
        return f"{parse_address(self._files.address).webhdfs}{path}"

    @property
    def user(self) -> str:
        return self._files.user

    def set_attribute(self, path: str, name: str, value: bytes) -> None:
        self._files.xattrs.set(path, name, value)

    def exists(self, path: str) -> bool:
        return self._files.exists(path)

    def create(self, path: str) -> BinaryIO:
        return cast(BinaryIO, self._files.open_for_writing(path))

    def replace(self, path: str, data: bytes) -> None:
        self._files.write(path, data, overwrite=True)

    def copy(self, source: str, target: str) -> Amount:
        self._files.mkdirs(posixpath.dirname(target))
        copied = self._files.copy(source, target)
        return Amount(copied.files, copied.length)

    def move(self, source: str, target: str) -> None:
        self._files.rename(source, target)

    def remove(self, path: str) -> None:
        self._files.delete(path, recursive=True)


def files_below(tree: FileTree, root: str) -> Iterator[TreeEntry]:
    """Yield every file of a tree. Skips directories that vanish meanwhile.

    Raises FileNotFound if `root` does not exist, BadRequest above `checkpoint_entries_max`.
    """
    pending, seen = [root], 0
    while pending:
        directory = pending.pop()
        try:
            entries = tree.entries(directory)
        except FileNotFound:
            if directory == root:
                raise
            continue
        seen += len(entries)
        if seen > checkpoint_entries_max:
            raise BadRequest(f"{root} holds more than {checkpoint_entries_max} files and directories")
        pending += [entry.path for entry in entries if entry.is_directory]
        yield from (entry for entry in entries if not entry.is_directory)
