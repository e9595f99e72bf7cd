"""A directory of files in any file system of fsspec: local, `peace://`, `s3://`, `memory://` and others."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from peacefs.protocol.errors import InvalidQuery, PeerUnreachable, StartupError
from peacefs.runtime.disk_files import sync_directory

from .extras import needed

#: Names under which file systems give the time of a file.
_TIMES = ("mtime", "modified", "LastModified", "last_modified", "created")


@dataclass(frozen=True)
class FoundFile:
    """A file below the directory."""

    #: Relative to the directory.
    path: str
    bytes: int
    modified_s: float

    @property
    def stamp(self) -> str:
        """A text that changes if the file does."""
        return f"{self.bytes} bytes at {self.modified_s:.6f}"


class FileTree:
    """Files below one directory. Paths are relative to it. Raises PeerUnreachable for errors of the system."""

    def __init__(self, url: str, options: Mapping[str, Any] | None) -> None:
        """`options`: the storage options of fsspec. Raises InvalidQuery for an unknown scheme, StartupError."""
        fsspec = needed("fsspec", "fsspec")
        if not isinstance(url, str) or not url:
            raise InvalidQuery(
                f"files need a directory, as 'file:///var/out' or 's3://bucket/out', and not {url!r}"
            )
        try:
            self.system, root = fsspec.core.url_to_fs(url, **(options or {}))
        except ValueError as error:
            raise InvalidQuery(
                f"{url!r} has a scheme that fsspec does not know ({error}): use a path, or file://, peace://, "
                "s3:// or memory://"
            ) from error
        except ImportError as error:
            raise StartupError(f"{url!r} needs a package: {error}") from error
        self.url, self._root = url, root.rstrip("/")
        protocol = self.system.protocol
        self._local = "file" in ((protocol,) if isinstance(protocol, str) else protocol)
        # Object stores have a listing of their own, which does not need a request for each directory.
        generic = needed("fsspec.asyn", "fsspec").AsyncFileSystem._find
        self._lists_at_once = getattr(type(self.system), "_find", generic) is not generic

    def __str__(self) -> str:
        return self.url

    def files(self, below: str = "") -> list[FoundFile]:
        """Return all files below a directory; none if it does not exist."""
        self.system.invalidate_cache()
        try:
            found = self._lists_all(below) if self._lists_at_once else self._walk(self._path(below))
            return [
                FoundFile(posixpath.relpath(info["name"], self._root), int(info.get("size") or 0), _time_of(info))
                for info in found
                if info.get("type") != "directory"
            ]
        except OSError as error:
            raise self._fault(error) from error

    def exists(self, path: str) -> bool:
        """Return True if a file exists. (fsspec's own method returns False for any error.)"""
        try:
            self.system.info(self._path(path))
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._fault(error) from error
        return True

    def open(self, path: str) -> Any:
        """Open a file for reading."""
        try:
            return self.system.open(self._path(path), "rb")
        except OSError as error:
            raise self._fault(error) from error

    def read(self, path: str) -> bytes:
        try:
            with self.system.open(self._path(path), "rb") as file:
                return bytes(file.read())
        except OSError as error:
            raise self._fault(error) from error

    def write(self, path: str, data: bytes) -> None:
        """Write a whole file durably, and replace an old one."""
        whole = self._path(path)
        try:
            self._make_directory(posixpath.dirname(whole))
            with self.system.open(whole, "wb") as file:
                file.write(data)
                if self._local:
                    file.flush()
                    os.fsync(file.fileno())
        except OSError as error:
            raise self._fault(error) from error

    def publish(self, staged: str, target: str) -> None:
        """Give a complete file its name. Does nothing if `staged` does not exist, so that it can be repeated."""
        if not self.exists(staged):
            return
        source, to = self._path(staged), self._path(target)
        try:
            self._make_directory(posixpath.dirname(to))
            if self._local:
                Path(source).replace(to)
                sync_directory(posixpath.dirname(to))
            else:
                self.system.mv(source, to)
        except OSError as error:
            raise self._fault(error) from error

    def remove(self, path: str) -> None:
        """Delete a file if it exists."""
        try:
            self.system.rm_file(self._path(path))
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._fault(error) from error

    def _lists_all(self, below: str) -> Iterable[Mapping[str, Any]]:
        try:
            found: Mapping[str, Mapping[str, Any]] = self.system.find(self._path(below), detail=True)
        except FileNotFoundError:
            return ()
        return found.values()

    def _walk(self, path: str) -> Iterator[Mapping[str, Any]]:
        """Yield what is below a directory. (fsspec's `walk` leaves out directories that it cannot list.)"""
        directories = [path]
        while directories:
            directory = directories.pop()
            try:
                listed = self.system.ls(directory, detail=True)
            except FileNotFoundError:
                continue
            for info in listed:
                if info["type"] == "directory" and info["name"].rstrip("/") != directory:
                    directories.append(info["name"].rstrip("/"))
                else:
                    yield info

    def _make_directory(self, path: str) -> None:
        if not self._local:
            self.system.makedirs(path, exist_ok=True)
            return
        missing = []
        while not Path(path).is_dir():
            missing.append(path)
            path = posixpath.dirname(path)
        for each in reversed(missing):
            Path(each).mkdir(exist_ok=True)
            # A file in a directory whose name is lost in a power failure is lost too.
            sync_directory(posixpath.dirname(each))

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def _fault(self, error: OSError) -> PeerUnreachable:
        return PeerUnreachable(f"files at {self.url}: {' '.join(str(error).split()) or type(error).__name__}")


def _time_of(info: Mapping[str, Any]) -> float:
    for name in _TIMES:
        found = info.get(name)
        if isinstance(found, datetime):
            return found.timestamp()
        if isinstance(found, int | float):
            return float(found)
    return 0.0
