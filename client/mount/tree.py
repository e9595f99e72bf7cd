"""The operations of a mounted file system, by path and by handle. Independent of FUSE.

All methods raise OSError with the errno that programs expect.
"""

from __future__ import annotations

import errno
import itertools
import logging
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from peacefs.client.control.values import FileStatus, Space
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.os_errors import as_os_error
from peacefs.protocol.errors import AccessDenied, FileNotFound, PeacefsError, RenameRefused

from .attributes import Attributes, attributes_of, attributes_of_local, attributes_of_open
from .blocks import Block
from .callers import have_open_for_writing, process_of
from .handles import WRITING, Caller, Handle
from .identities import Identities
from .lookups import Lookups
from .open_file import OpenFile
from .readers import ReadAhead, VersionReader
from .stage import StagingRoom

log = logging.getLogger("peacefs.mount")

# The limit of the cluster and of HDFS.
name_bytes_max: Final = 255
#: The prefix of the hidden names that libfuse gives to files that are deleted while open.
HIDDEN_PREFIX: Final = ".fuse_hidden"


@contextmanager
def _as_os_errors(denied: int = errno.EACCES) -> Iterator[None]:
    try:
        yield
    except AccessDenied as error:
        translated = as_os_error(error)
        number = denied if translated.errno == errno.EACCES else translated.errno
        raise OSError(number, error.message) from error
    except PeacefsError as error:
        raise as_os_error(error) from error
    except UnicodeEncodeError as error:
        raise OSError(errno.EILSEQ, "names are UTF-8") from error


class MountedTree:
    """The files of a cluster, overlaid with the local changes of open files. Thread-safe.

    Local processes see each other's changes at once. Other machines see a file as a whole when it is closed or
    synced. If the mount dies, unpublished changes are lost.
    """

    def __init__(self, files: PeaceFileSystem, room: StagingRoom, uid: int) -> None:
        """`uid` is the local user of the mount. Other users own the files they create, if `files` may set it."""
        self._files = files
        self._room = room
        self._uid = uid
        self._identities = Identities(files.user)
        self._lookups = Lookups(files)
        self._ahead = ReadAhead()
        self._lock = threading.Lock()
        self._open: dict[str, OpenFile] = {}
        self._handles: dict[int, Handle] = {}
        self._numbers = itertools.count(1)

    # -- metadata ----------------------------------------------------------------------------------

    def attributes(self, path: str) -> Attributes:
        with _as_os_errors():
            if len(_name(path).encode()) > name_bytes_max:
                raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
            file = self._open.get(path)
            if file is not None and file.is_local:
                return attributes_of_local(file, self._files.user, self._identities)
            status = self._lookups.status(path)
            if file is None:
                return attributes_of(status, self._identities)
            return attributes_of_open(file, status, self._identities)

    def list(self, path: str) -> list[tuple[str, int]]:
        """Return the names in a directory with their types, as mode bits."""
        with _as_os_errors():
            entries: dict[str, int] = {}
            for entry in self._lookups.list(path):
                if entry.path == path and not entry.is_directory:
                    raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
                entries[entry.name] = stat.S_IFDIR if entry.is_directory else stat.S_IFREG
            with self._lock:
                here = [(_name(known), file) for known, file in self._open.items() if _parent(known) == path]
            for name, file in here:
                if file.is_deleted:
                    entries.pop(name, None)
                else:
                    entries.setdefault(name, stat.S_IFREG)
            return sorted(entries.items())

    def space(self) -> Space:
        with _as_os_errors():
            return self._lookups.space()

    # -- open files --------------------------------------------------------------------------------

    def create(self, path: str, flags: int, mode: int, caller: Caller) -> int:
        """Create and open a file. Other machines see it when it is closed or synced."""
        with _as_os_errors():
            self._lookups.check_access(_parent(path), "-wx")
            with self._lock:
                file = self._open.get(path)
                if file is None:
                    file = self._file(path, None, stat.S_IMODE(mode) & 0o1777)
                    file.is_exclusive = bool(flags & os.O_EXCL)
                    if caller.uid != self._uid:
                        file.pending.owner = self._identities.owner(caller.uid)
                        file.pending.group = self._identities.group(caller.gid)
                    self._open[path] = file
                elif flags & os.O_EXCL:
                    raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
                return self._opened(file, flags, caller)

    def open(self, path: str, flags: int, caller: Caller) -> int:
        with _as_os_errors():
            file, number = self._opened_again(path, flags, caller) or self._opened_first(path, flags, caller)
            try:
                if flags & WRITING and not file.is_local:
                    self._lookups.check_access(path, "-w-")
                if flags & os.O_TRUNC and self._handles[number].is_writing:
                    self._lookups.check_access(_parent(path), "-wx")
                    file.replace()
                elif flags & os.O_ACCMODE == os.O_RDONLY and not file.is_local:
                    # Keep reading this version from now on.
                    self._reader(self._handles[number])
            except BaseException:
                self._closed(number)
                raise
            return number

    def _opened_again(self, path: str, flags: int, caller: Caller) -> tuple[OpenFile, int] | None:
        """Open a file that is open already. Return None if it is not."""
        with self._lock:
            file = self._open.get(path)
            return None if file is None else (file, self._opened(file, flags, caller))

    def _opened_first(self, path: str, flags: int, caller: Caller) -> tuple[OpenFile, int]:
        """Open a file of the cluster. If another process has opened it meanwhile, return that open file."""
        try:
            status = self._lookups.fresh_status(path)
        except FileNotFound as error:
            # The kernel has the name of a file that another machine deleted. With this errno it looks the name up
            # again, and creates the file if O_CREAT is given.
            self._lookups.forget(path)
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE)) from error
        if status.is_directory:
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        with self._lock:
            file = self._open.setdefault(path, self._file(path, status, status.permission))
            return file, self._opened(file, flags, caller)

    def _file(self, path: str, status: FileStatus | None, mode: int) -> OpenFile:
        return OpenFile(self._files, self._room, self._ahead, path, status, mode, self._lookups.forget)

    def _opened(self, file: OpenFile, flags: int, caller: Caller) -> int:
        number, handle = next(self._numbers), Handle(file, flags)
        self._handles[number] = handle
        file.handles += 1
        if handle.is_writing:
            file.writing_handles += 1
            handle.writers.add(process_of(caller.thread))
        return number

    def read_block(self, number: int, offset: int, count: int) -> Block:
        """Return up to `count` bytes, fewer only at the end of the file."""
        with _as_os_errors():
            handle = self._handles[number]
            if handle.reader is not None and handle.generation == handle.file.generation:
                block = None if handle.file.has_changes else handle.reader.take_block(offset, count)
                if block is not None:
                    return block
        block = Block(count)
        return block.cut(self.read_into(number, offset, block.view))

    def read_into(self, number: int, offset: int, target: memoryview) -> int:
        with _as_os_errors():
            handle = self._handles[number]
            count = handle.file.read_into(offset, target)
            if count is not None:
                return count
            reader = self._reader(handle)
            if offset >= reader.length and not handle.file.is_deleted:
                with suppress(FileNotFound):
                    extended = handle.file.extended(reader, self._lookups.status(handle.file.path))
                    if extended is not None:
                        handle.extend(reader, extended)
                        reader = extended
            return reader.read_into(offset, target)

    def _reader(self, handle: Handle) -> VersionReader:
        file = handle.file
        with file.lock:
            if handle.reader is None or handle.generation != file.generation:
                fresh = VersionReader(self._files.open(file.path), self._ahead)
                handle.read_through(fresh)
                # After the reader, because `read_block` looks at both without the lock.
                handle.generation = file.generation
                return fresh
            return handle.reader

    def write(self, number: int, offset: int, data: bytes, caller: Caller) -> int:
        with _as_os_errors():
            handle = self._handles[number]
            if caller.thread not in handle.writers:
                handle.writers.add(process_of(caller.thread))
            return handle.file.write(None if handle.is_appending else offset, data)

    def truncate(self, path: str, length: int, number: int | None, caller: Caller) -> None:
        with _as_os_errors():
            if number is not None:
                self._handles[number].file.truncate(length)
                return
            opened = self.open(path, os.O_WRONLY, caller)
            try:
                file = self._handles[opened].file
                file.truncate(length)
                if file.writing_handles == 1:
                    file.flush()
            finally:
                self._closed(opened)

    def flush(self, number: int, caller: Caller) -> None:
        """Publish at a close, unless a process that writes to the file has another descriptor of it."""
        with _as_os_errors():
            handle = self._handles[number]
            file = handle.file
            if not handle.is_writing or not file.is_dirty or file.is_deleted:
                return
            if not have_open_for_writing(handle.writers | {process_of(caller.thread)}, file.path):
                file.flush()

    def sync(self, number: int) -> None:
        with _as_os_errors():
            self._handles[number].file.sync()

    def release(self, number: int) -> None:
        """Forget a handle after its last descriptor was closed."""
        handle = self._handles[number]
        try:
            if handle.is_writing and handle.file.is_dirty and handle.file.writing_handles == 1:
                handle.file.flush()
        except (PeacefsError, OSError) as error:
            log.error("%s was closed and could not be written: %s", handle.file.path, error)
        finally:
            self._closed(number)

    def _closed(self, number: int) -> None:
        with self._lock:
            handle = self._handles.pop(number)
            file = handle.file
            file.handles -= 1
            file.writing_handles -= handle.is_writing
            is_last = file.handles == 0
            if is_last and self._open.get(file.path) is file:
                del self._open[file.path]
        if is_last:
            file.end()
        elif handle.is_writing and not file.writing_handles:
            file.settle()
        if handle.reader is not None:
            handle.reader.close()

    # -- names -------------------------------------------------------------------------------------

    def make_directory(self, path: str, mode: int, caller: Caller) -> None:
        with _as_os_errors():
            if self._files.exists(path):
                raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
            self._files.status(_parent(path))
            try:
                self._files.mkdirs(path, stat.S_IMODE(mode) & 0o1777)
                if caller.uid != self._uid:
                    # Only superusers may change the owner.
                    with suppress(AccessDenied):
                        owner, group = self._identities.owner(caller.uid), self._identities.group(caller.gid)
                        self._files.set_owner(path, owner, group)
            finally:
                self._lookups.forget(path)

    def remove_directory(self, path: str) -> None:
        with _as_os_errors():
            with self._lock:
                if self._has_local_below(path):
                    raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
            if not self._files.status(path).is_directory:
                raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            self._delete(path)

    def remove_file(self, path: str) -> None:
        with _as_os_errors():
            file = self._open.get(path)
            if file is not None:
                file.delete()
                with self._lock:
                    if self._open.get(path) is file:
                        del self._open[path]
                if file.is_local:
                    return
            self._delete(path)

    def _delete(self, path: str) -> None:
        try:
            if not self._files.delete(path):
                raise FileNotFound(path)
        finally:
            self._lookups.forget(path)

    def rename(self, source: str, target: str, *, replaces: bool = True) -> None:
        with _as_os_errors():
            if _name(target).startswith(HIDDEN_PREFIX) and self._hide(source, target):
                return
            with self._lock:
                moved = [file for path, file in self._open.items() if path == source or _is_below(path, source)]
                if self._has_local_below(target):
                    raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
            for file in moved:
                # End streams first, because a stream belongs to the old name.
                file.flush()
            try:
                self._files.rename(source, target, overwrite=replaces)
            except RenameRefused:
                if self._is_full(target):
                    raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY)) from None
                raise
            finally:
                self._lookups.forget(source)
                self._lookups.forget(target)
            with self._lock:
                replaced = self._open.pop(target, None)
                for file in moved:
                    self._move(file, target + file.path[len(source) :])
            if replaced is not None and replaced not in moved:
                replaced.delete()

    def _has_local_below(self, directory: str) -> bool:
        """Return whether a file below the path exists only locally. The caller holds the lock."""
        return any(
            file.is_local and not file.is_deleted and _is_below(path, directory)
            for path, file in self._open.items()
        )

    def _is_full(self, path: str) -> bool:
        with suppress(FileNotFound):
            return self._files.status(path).is_directory and any(page.entries for page in self._files.pages(path))
        return False

    def exchange(self, one: str, other: str) -> None:
        """Exchange two names in one directory."""
        with _as_os_errors():
            with self._lock:
                is_open = any(
                    path in (one, other) or _is_below(path, one) or _is_below(path, other) for path in self._open
                )
            if is_open:
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
            try:
                self._files.exchange((one, other))
            finally:
                self._lookups.forget(one)
                self._lookups.forget(other)

    def _hide(self, source: str, target: str) -> bool:
        """Rename an open file that is being deleted to its hidden name. Return False if it is not open."""
        file = self._open.get(source)
        if file is None:
            return False
        if not file.is_local:
            # Before the content is detached, after which it could not be published any more.
            self._lookups.check_access(_parent(source), "-wx")
        try:
            if not file.is_local and file.detach():
                self._files.delete(source)
            elif not file.is_local:
                self._files.rename(source, target, overwrite=True)
        finally:
            self._lookups.forget(source)
        file.delete()
        with self._lock:
            self._move(file, target)
        return True

    def _move(self, file: OpenFile, path: str) -> None:
        if self._open.get(file.path) is file:
            del self._open[file.path]
        file.path = path
        self._open[path] = file

    # -- attributes --------------------------------------------------------------------------------

    def set_mode(self, path: str, mode: int) -> None:
        with _as_os_errors(errno.EPERM):
            file = self._open.get(path)
            # The cluster does not store set-user-id and set-group-id bits.
            permission = stat.S_IMODE(mode) & 0o1777
            if file is not None:
                file.pending.mode = permission
            if file is None or not file.is_local:
                self._files.set_permission(path, permission)
                self._lookups.forget(path)

    def set_owner(self, path: str, uid: int, gid: int) -> None:
        """Change owner and group; -1 keeps the current one."""
        with _as_os_errors(errno.EPERM):
            owner = None if uid == -1 else self._identities.owner(uid)
            group = None if gid == -1 else self._identities.group(gid)
            file = self._open.get(path)
            if file is not None and file.is_local:
                file.pending.owner = owner or file.pending.owner
                file.pending.group = group or file.pending.group
                return
            shown = self.attributes(path)
            # Programs such as `cp -a` set the owner even if it is correct already.
            owner = None if uid == shown.uid else owner
            group = None if gid == shown.gid else group
            if owner is not None or group is not None:
                self._files.set_owner(path, owner, group)
                self._lookups.forget(path)

    def set_times(self, path: str, accessed_ms: int | None, modified_ms: int | None) -> None:
        """Set times in milliseconds since 1970; None keeps the present time."""
        with _as_os_errors(errno.EPERM):
            file = self._open.get(path)
            if file is not None and file.is_dirty:
                # Publish first, because publishing sets the time.
                pending = file.pending
                pending.accessed_ms = pending.accessed_ms if accessed_ms is None else max(accessed_ms, 0)
                pending.modified_ms = pending.modified_ms if modified_ms is None else max(modified_ms, 0)
                return
            self._files.set_times(
                path,
                modified_ms=None if modified_ms is None else max(modified_ms, 0),
                accessed_ms=None if accessed_ms is None else max(accessed_ms, 0),
            )
            self._lookups.forget(path)

    def xattrs(self, path: str) -> dict[str, bytes]:
        with _as_os_errors():
            file = self._open.get(path)
            if file is not None and file.is_local:
                return dict(file.pending.xattrs)
            return self._files.xattrs.get(path)

    def set_xattr(self, path: str, name: str, value: bytes, *, create: bool, replace: bool) -> None:
        with _as_os_errors(errno.EPERM):
            exists = name in self.xattrs(path) if create or replace else False
            if create and exists:
                raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
            if replace and not exists:
                raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))
            file = self._open.get(path)
            if file is not None and file.is_local:
                file.pending.xattrs[name] = value
            else:
                self._files.xattrs.set(path, name, value)

    def remove_xattr(self, path: str, name: str) -> None:
        with _as_os_errors(errno.EPERM):
            if name not in self.xattrs(path):
                raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))
            file = self._open.get(path)
            if file is not None and file.is_local:
                del file.pending.xattrs[name]
            else:
                self._files.xattrs.remove(path, name)


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _is_below(path: str, directory: str) -> bool:
    return path.startswith(directory.rstrip("/") + "/")
