"""The file system `peace://host:port/path` for fsspec, and so for pandas, pyarrow and Dask.

    fsspec.open("peace://coordinator:9870/notes/today")
    pandas.read_parquet("peace://coordinator:9870/out", storage_options={"user": "alice"})

A thin layer over `client.filesystem`; needs the extra `fsspec`. Listings are not cached.
"""

from __future__ import annotations

import os
import uuid
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from fsspec.utils import stringify_path, tokenize

from peacefs.client.control.addresses import CoordinatorAddress, parse_address, split_uri
from peacefs.client.control.values import FileStatus
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.os_errors import os_errors
from peacefs.client.transfer.small_writes import is_small
from peacefs.protocol.errors import FileAlreadyExists, FileNotFound, ParentNotDirectory, PathIsDirectory
from peacefs.protocol.limits import coordinator_http_port_default

from .copies import CopyingFileSystem
from .files import FsspecSink, FsspecSource, UnclosedFiles, publish_all

# Maximum number of file ranges that one call reads concurrently.
ranges_read_at_once_max: Final = 8


_SCHEME = "peace://"


class PeaceFsspecFileSystem(CopyingFileSystem):
    """A cluster's files, with fsspec's methods. fsspec makes and caches instances; they can be pickled and forked.

    Storage options: `host` and `port` of the coordinator, taken from the URL (for several coordinators only
    `host`, as `a:9870,b:9870`); `user`; `replication` of new files; `tls` to encrypt all traffic, the default if
    `ca_file`, the CA to trust, is given. A `token_file` is read by each process; a `token` is sent wherever the
    options are sent. Without either, each process uses its PEACEFS_TOKEN_FILE or PEACEFS_TOKEN.

    Errors are subclasses of OSError. `created` is not supported, because the cluster does not store it.
    """

    protocol = _SCHEME.removesuffix("://")
    root_marker = "/"

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = coordinator_http_port_default,
        user: str | None = None,
        replication: int | None = None,
        token: str | None = None,
        token_file: str | None = None,
        tls: bool | None = None,
        ca_file: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        tls = tls if tls is not None else ca_file is not None
        if "," in host:
            with os_errors():
                self._address = parse_address(f"{'https' if tls else 'http'}://{host}")
        else:
            self._address = CoordinatorAddress(host, int(port), tls)
        self._ca_file = ca_file
        self._user = user
        self._replication = replication
        self._token = token
        self._token_file = token_file
        self._files: PeaceFileSystem | None = None
        self._process = 0
        #: Files that are published before the client is closed.
        self.unclosed: UnclosedFiles = {}

    @property
    def files(self) -> PeaceFileSystem:
        """The underlying client. A forked process makes its own, because connections cannot be shared."""
        if self._files is None or self._process != os.getpid():
            with os_errors():
                self._files = PeaceFileSystem(
                    self._address.http,
                    self._user,
                    token=self._token,
                    token_file=self._token_file,
                    ca_file=self._ca_file,
                )
                self._process = os.getpid()
            self.unclosed = {}
            # fsspec never closes a file system.
            weakref.finalize(self, _close, self._files, self._process, self.unclosed)
        return self._files

    @property
    def fsid(self) -> str:
        return f"peace_{tokenize(*((one.host, one.port) for one in self._address.each))}"

    # -- paths -------------------------------------------------------------------------------------

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        """Return the absolute path in the cluster. `?` and `#` are ordinary characters, as in Hadoop."""
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        text: str = stringify_path(path)
        if text.startswith(_SCHEME):
            text = text.removeprefix(_SCHEME).partition("/")[2]
        else:
            text = text.removeprefix("peace::")
        return "/" + text.strip("/")

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        if not path.startswith(_SCHEME):
            return {}
        netloc, _, _ = path.removeprefix(_SCHEME).partition("/")
        user, _, where = netloc.rpartition("@")
        named: dict[str, Any] = {"user": user} if user else {}
        if where:
            with os_errors():
                address, _ = split_uri(_SCHEME + where)
            named |= {"host": address.netloc} if address.others else {"host": address.host, "port": address.port}
        return named

    def unstrip_protocol(self, name: str) -> str:
        return name if name.startswith(_SCHEME) else f"{_SCHEME}{self._address.netloc}{self._strip_protocol(name)}"

    def parent_of(self, path: str) -> str:
        parent: str = self._parent(path)
        return parent

    # -- metadata ----------------------------------------------------------------------------------

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        with os_errors():
            entries = [_info(status) for status in self.files.list(self._strip_protocol(path))]
        return entries if detail else [entry["name"] for entry in entries]

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        with os_errors():
            return _info(self.files.status(self._strip_protocol(path)))

    def exists(self, path: str, **kwargs: Any) -> bool:
        """Return whether a path exists. The inherited method would return False after any error."""
        return self._kind(path) is not None

    def isdir(self, path: str) -> bool:
        return self._kind(path) == "directory"

    def isfile(self, path: str) -> bool:
        return self._kind(path) == "file"

    def modified(self, path: str) -> datetime:
        return datetime.fromtimestamp(self.info(path)["mtime"], UTC)

    def du(
        self, path: str, total: bool = True, maxdepth: int | None = None, withdirs: bool = False, **kwargs: Any
    ) -> Any:
        """Return the sizes below a path. The total of a whole tree takes one call."""
        if not total or maxdepth is not None:
            return super().du(path, total=total, maxdepth=maxdepth, withdirs=withdirs, **kwargs)
        with os_errors():
            return self.files.content_summary(self._strip_protocol(path)).length

    def _kind(self, path: str) -> str | None:
        try:
            kind: str = self.info(path)["type"]
        except (FileNotFoundError, NotADirectoryError):
            return None
        return kind

    # -- data --------------------------------------------------------------------------------------

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        replication: int | None = None,
        **options: Any,
    ) -> FsspecSource | FsspecSink:
        if mode == "rb":
            return FsspecSource(self, path, block_size, autocommit=autocommit, **options)
        return FsspecSink(
            self,
            path,
            mode,
            block_size,
            autocommit=autocommit,
            replication=replication or self._replication,
            **options,
        )

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        """Return the bytes from `start` to `end`, as in a slice."""
        with os_errors(), self.files.open(self._strip_protocol(path)) as source:
            first, last, _ = slice(start, end).indices(source.length)
            return source.read_at(first, max(0, last - first))

    def cat_ranges(
        self,
        paths: list[str],
        starts: Sequence[int | None] | int | None,
        ends: Sequence[int | None] | int | None,
        max_gap: int | None = None,
        on_error: str = "return",
        **kwargs: Any,
    ) -> list[bytes | Exception]:
        """Read several ranges concurrently, on threads."""
        if max_gap is not None:
            raise NotImplementedError("ranges are not merged")
        if not isinstance(paths, list):
            raise TypeError("paths is not a list")
        starts = list(starts) if isinstance(starts, Sequence) else [starts] * len(paths)
        ends = list(ends) if isinstance(ends, Sequence) else [ends] * len(paths)

        def one(path: str, start: int | None, end: int | None) -> bytes | Exception:
            try:
                return self.cat_file(path, start, end)
            except OSError as error:
                if on_error == "return":
                    return error
                raise

        with ThreadPoolExecutor(ranges_read_at_once_max, thread_name_prefix="peacefs-ranges") as threads:
            ranges = zip(paths, starts, ends, strict=True)
            begun = [threads.submit(copy_context().run, partial(one, *each)) for each in ranges]
            return [future.result() for future in begun]

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **kwargs: Any) -> None:
        """Write a file. With `mode` "create", publishing fails if the file exists."""
        if not kwargs and not self._intrans and is_small(value):
            with os_errors():
                self.files.write(
                    self._strip_protocol(path), value, overwrite=mode != "create", replication=self._replication
                )
            return
        with self.open(path, "xb" if mode == "create" else "wb", **kwargs) as sink:
            sink.write(value)

    # -- changes -----------------------------------------------------------------------------------

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        if not create_parents and not self.isdir(self._parent(path)):
            raise FileNotFoundError(f"{self._parent(path)} is no directory")
        self.makedirs(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        path = self._strip_protocol(path)
        if not exist_ok and self.exists(path):
            raise FileExistsError(f"{path} exists")
        with os_errors():
            self.files.mkdirs(path)

    def rmdir(self, path: str) -> None:
        path = self._strip_protocol(path)
        if self.info(path)["type"] != "directory":
            raise NotADirectoryError(f"{path} is a file")
        with os_errors():
            self.files.delete(path)

    def rm_file(self, path: str) -> None:
        path = self._strip_protocol(path)
        with os_errors():
            if self.files.status(path).is_directory:
                raise PathIsDirectory(f"{path} is a directory; it is deleted with recursive=True")
            self.files.delete(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Delete paths. A tree is removed in one step; its space is reclaimed later."""
        if maxdepth is not None:
            super().rm(path, recursive=recursive, maxdepth=maxdepth)
            return
        paths = self.expand_path(path)
        for each in paths:
            if not recursive:
                self.rm_file(each)
                continue
            with os_errors():
                # A path may have been deleted together with a directory that contained it.
                if not self.files.delete(each, recursive=True) and len(paths) == 1:
                    raise FileNotFound(f"{each} does not exist")

    def mv(
        self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None, **kwargs: Any
    ) -> None:
        """Move a file or tree in one atomic step, to exactly `path2`, or into it if it is a directory."""
        if isinstance(path1, list) and isinstance(path2, list):
            for one, other in zip(path1, path2, strict=True):
                self.mv(one, other)
            return
        sources = self.expand_path(path1)
        into = len(sources) > 1 or str(path2).endswith("/") or self.isdir(path2)
        for source in sources:
            target = self._strip_protocol(path2)
            if into:
                target = f"{target.rstrip('/')}/{source.rpartition('/')[2]}"
            if source != target:
                with os_errors():
                    self.files.rename(source, target, overwrite=True)

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Copy a file without copying data, replacing the target in one step. A directory is created empty."""
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        with os_errors():
            if self.files.status(source).is_directory:
                self.files.mkdirs(target)
                return
            self.files.mkdirs(self._parent(target))
            try:
                self.files.copy(source, target)
            except FileAlreadyExists:
                self._replace(source, target)

    def _replace(self, source: str, target: str) -> None:
        if source == target:
            return
        beside = f"{self._parent(target).rstrip('/')}/.{uuid.uuid4().hex}.copy"
        self.files.copy(source, beside)
        try:
            self.files.rename(beside, target, overwrite=True)
        except BaseException:
            self.files.delete(beside)
            raise

    def copy(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        on_error: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Copy files or trees. A whole tree to a new name is copied in one atomic step, without copying data."""
        if recursive and maxdepth is None and isinstance(path1, str) and isinstance(path2, str):
            target = self._strip_protocol(path2)
            if (path2.endswith("/") or self.isdir(target)) and not path1.endswith("/"):
                target = f"{target.rstrip('/')}/{self._strip_protocol(path1).rpartition('/')[2]}"
            if self._copied_whole(self._strip_protocol(path1), target):
                return
        super().copy(path1, path2, recursive=recursive, maxdepth=maxdepth, on_error=on_error, **kwargs)

    def _copied_whole(self, source: str, target: str) -> bool:
        if not self.isdir(source) or self.exists(target):
            return False
        with os_errors():
            self.files.mkdirs(self._parent(target))
            try:
                self.files.copy(source, target)
            except (FileAlreadyExists, ParentNotDirectory):
                # Another process created the target first.
                return False
        return True


def _close(files: PeaceFileSystem, process: int, unclosed: UnclosedFiles) -> None:
    # A forked process must not shut down its parent's connections.
    if process == os.getpid():
        try:
            publish_all(unclosed)
        finally:
            files.close()


def _info(status: FileStatus) -> dict[str, Any]:
    """Return a path's metadata with fsspec's names; `mtime` is in seconds since 1970."""
    return {
        "name": status.path.rstrip("/") or "/",
        "size": status.length,
        "type": "directory" if status.is_directory else "file",
        "mtime": status.modified_ms / 1000,
        "mode": status.permission,
        "owner": status.owner,
        "group": status.group,
        "replication": status.replication,
        "block_size": status.block_bytes,
    }
