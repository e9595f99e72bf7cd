"""Serves a `MountedTree` to the kernel, over FUSE.

The kernel caches no data: if two processes had different versions of a file open, it would show them a mix of
both. It caches names briefly, and attributes not at all.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

# Select libfuse 3 before the binding searches for a library.
os.environ.setdefault("FUSE_LIBRARY_NAME", "fuse3")
try:
    import mfusepy
except OSError as missing:
    from peacefs.protocol.errors import StartupError

    raise StartupError(
        "libfuse 3 is not installed: apt-get install fuse3 (Debian), or fuse3-libs (Fedora)"
    ) from missing

import ctypes

from .attributes import Attributes
from .blocks import Block
from .handles import Caller
from .tree import MountedTree, name_bytes_max

log = logging.getLogger("peacefs.mount")

# How long the kernel caches names. A rename on another machine becomes visible after this time.
name_age_s_max: Final = 1.0
_BLOCK_BYTES: Final = 4096
#: The number of files to report, which is unlimited. Programs treat 0 as a full disk.
_FILES: Final = 1 << 31
_UTIME_NOW: Final = (1 << 30) - 1
_UTIME_OMIT: Final = (1 << 30) - 2
_RENAME_NOREPLACE: Final = 1
_RENAME_EXCHANGE: Final = 2
#: From malloc.h: the maximum block size that the allocator reuses without returning it to the kernel.
_M_MMAP_THRESHOLD: Final = -3
_M_TRIM_THRESHOLD: Final = -1
_KEPT_BYTES: Final = 32 << 20
_XATTR_CREATE: Final = 1
_XATTR_REPLACE: Final = 2
#: Prefixes of extended attributes that the kernel requests often and the cluster does not have.
_FOREIGN_ATTRIBUTES: Final = ("security.", "system.")

#: Room for members of libfuse's structures that this version does not know.
_SPARE_BYTES: Final = 64
_LIBC: Final = ctypes.CDLL(None)
_LIBC.calloc.restype, _LIBC.calloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t, ctypes.c_size_t)

if TYPE_CHECKING:
    from collections.abc import Iterable


class _BufferVector(ctypes.Structure):
    """libfuse's `struct fuse_bufvec` with one buffer inside. Newer versions have more members at the end."""

    _fields_ = (
        ("count", ctypes.c_size_t),
        ("index", ctypes.c_size_t),
        ("offset", ctypes.c_size_t),
        ("size", ctypes.c_size_t),
        ("flags", ctypes.c_int),
        ("memory", ctypes.c_void_p),
        ("descriptor", ctypes.c_int),
        ("position", ctypes.c_int64),
    )


def _caller() -> Caller:
    uid, gid, thread = mfusepy.fuse_get_context()
    return Caller(thread, uid, gid)


class _Operations(mfusepy.Operations):  # type: ignore[misc]
    """Passes requests to the tree. `_Session` implements methods that need more than the binding's interface."""

    use_ns = True

    def __init__(self, tree: MountedTree, ready: Callable[[], None]) -> None:
        self._tree = tree
        self._ready = ready

    def init_with_config(self, conn_info: Any, config_3: Any) -> None:
        if config_3 is not None:
            config_3.entry_timeout = name_age_s_max
            config_3.attr_timeout = 0.0
            config_3.negative_timeout = 0.0
        self._ready()

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        return _stat(self._tree.attributes(path))

    def readdir(self, path: str, fh: int) -> Iterable[tuple[str, int, int]]:
        names = self._tree.list(path)
        return [(name, kind, 0) for name, kind in ((".", 0o040000), ("..", 0o040000), *names)]

    def statfs(self, path: str) -> dict[str, int]:
        space = self._tree.space()
        return {
            "f_bsize": _BLOCK_BYTES,
            "f_frsize": _BLOCK_BYTES,
            "f_blocks": space.capacity // _BLOCK_BYTES,
            "f_bfree": space.remaining // _BLOCK_BYTES,
            "f_bavail": space.remaining // _BLOCK_BYTES,
            "f_files": _FILES,
            "f_ffree": _FILES,
            "f_favail": _FILES,
            "f_namemax": name_bytes_max,
        }

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        return self._tree.create(path, fi, mode, _caller())

    def open(self, path: str, flags: int) -> int:
        return self._tree.open(path, flags, _caller())

    def read_buf(self, path: str, bufpp: Any, size: int, offset: int, fh: int) -> int:
        raise AssertionError("the session gives blocks to libfuse")

    def read_block(self, handle: int, offset: int, count: int) -> Block:
        return self._tree.read_block(handle, offset, count)

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        return self._tree.write(fh, offset, data, _caller())

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        self._tree.truncate(path, length, fh, _caller())
        return 0

    def flush(self, path: str, fh: int) -> int:
        self._tree.flush(fh, _caller())
        return 0

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        self._tree.sync(fh)
        return 0

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        # Nothing to sync: a change of names is durable before it is answered.
        return 0

    def release(self, path: str, fh: int) -> int:
        self._tree.release(fh)
        return 0

    def mkdir(self, path: str, mode: int) -> int:
        self._tree.make_directory(path, mode, _caller())
        return 0

    def rmdir(self, path: str) -> int:
        self._tree.remove_directory(path)
        return 0

    def unlink(self, path: str) -> int:
        self._tree.remove_file(path)
        return 0

    def rename(self, old: str, new: str) -> int:
        self._tree.rename(old, new)
        return 0

    def rename_with_flags(self, old: str, new: str, flags: int) -> int:
        if flags == _RENAME_EXCHANGE:
            self._tree.exchange(old, new)
        elif flags in (0, _RENAME_NOREPLACE):
            self._tree.rename(old, new, replaces=not flags)
        else:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return 0

    def chmod(self, path: str, mode: int) -> int:
        self._tree.set_mode(path, mode)
        return 0

    def chown(self, path: str, uid: int, gid: int) -> int:
        self._tree.set_owner(path, uid, gid)
        return 0

    def utimens(self, path: str, times: Any = None) -> int:
        accessed, modified = times
        self._tree.set_times(path, accessed, modified)
        return 0

    def symlink(self, target: str, source: str) -> int:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    def link(self, target: str, source: str) -> int:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    def mknod(self, path: str, mode: int, dev: int) -> int:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    def listxattr(self, path: str) -> list[str]:
        return list(self._tree.xattrs(path))

    def getxattr(self, path: str, name: str, position: int = 0) -> bytes:
        value = None if name.startswith(_FOREIGN_ATTRIBUTES) else self._tree.xattrs(path).get(name)
        if value is None:
            raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))
        return value

    def setxattr(self, path: str, name: str, value: bytes, options: int, position: int = 0) -> int:
        if name.startswith(_FOREIGN_ATTRIBUTES):
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        create, replace = bool(options & _XATTR_CREATE), bool(options & _XATTR_REPLACE)
        self._tree.set_xattr(path, name, value, create=create, replace=replace)
        return 0

    def removexattr(self, path: str, name: str) -> int:
        self._tree.remove_xattr(path, name)
        return 0


class _Session(mfusepy.FUSE):  # type: ignore[misc]
    """Extends the binding: no copies of data, rename flags, times that stay unchanged, and no page cache."""

    def _wrapper(self, func: Any, *args: Any, **kwargs: Any) -> int:
        # For some exceptions, the binding would answer EINVAL and stop the mount.
        try:
            return func(*args, **kwargs) or 0
        except OSError as error:
            return -(error.errno or errno.EIO)
        except Exception:
            log.exception("the mount failed in %s", func.__name__)
            return -errno.EIO

    def open(self, path: bytes, fip: Any) -> int:
        info = fip.contents
        info.fh = self.operations.open(path.decode(self.encoding, self.errors), info.flags)
        info.direct_io = 1
        return 0

    def create(self, path: bytes, mode: int, fip: Any) -> int:
        info = fip.contents
        info.fh = self.operations.create(path.decode(self.encoding, self.errors), mode, info.flags)
        info.direct_io = 1
        return 0

    def read_buf(self, path: bytes | None, bufpp: Any, size: int, offset: int, fip: Any) -> int:
        block = self.operations.read_block(fip.contents.fh, offset, size)
        # libfuse frees the vector, and the memory of its buffer.
        address = _LIBC.calloc(1, ctypes.sizeof(_BufferVector) + _SPARE_BYTES)
        if not address:
            raise MemoryError
        vector = _BufferVector.from_address(address)
        vector.count, vector.size, vector.memory = 1, block.length, block.give()
        ctypes.cast(bufpp, ctypes.POINTER(ctypes.c_void_p))[0] = address
        return 0

    def rename_fuse_3(self, old: bytes, new: bytes, flags: int) -> int:
        source, target = (name.decode(self.encoding, self.errors) for name in (old, new))
        return int(self.operations.rename_with_flags(source, target, flags))

    def utimens_fuse_3(self, path: bytes, buf: Any, fip: Any) -> int:
        times = ctypes.cast(buf, ctypes.POINTER(mfusepy.c_timespec * 2)).contents if buf else ()
        wanted = [_milliseconds(each.tv_sec, each.tv_nsec) for each in times] or [_now_ms(), _now_ms()]
        return int(self.operations.utimens(path.decode(self.encoding, self.errors), wanted))


def serve(tree: MountedTree, directory: str, options: dict[str, Any], ready: Callable[[], None]) -> None:
    """Mount, call `ready`, and serve until unmounted or a signal. Raises OSError if it cannot mount."""
    _keep_buffers()
    begun = []

    def begin() -> None:
        begun.append(True)
        ready()

    try:
        _Session(_Operations(tree, begin), directory, foreground=True, **options)
    except RuntimeError as failed:
        if begun:
            # A signal ended the mount.
            return
        raise OSError(errno.EIO, "cannot mount; the line above says why", directory) from failed


def _keep_buffers() -> None:
    """Make the C library reuse read buffers: fresh memory for each read costs more than the read itself."""
    _LIBC.mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
    _LIBC.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def _stat(found: Attributes) -> dict[str, Any]:
    return {
        "st_mode": found.mode,
        # Programs compare a directory's link count with the number of its subdirectories; 1 means unknown.
        "st_nlink": 1,
        "st_uid": found.uid,
        "st_gid": found.gid,
        "st_size": found.length,
        "st_blocks": -(-found.length // 512),
        "st_blksize": 1 << 20,
        "st_mtime": found.modified_ms * 1_000_000,
        "st_ctime": found.modified_ms * 1_000_000,
        "st_atime": found.accessed_ms * 1_000_000,
    }


def _milliseconds(seconds: int, nanoseconds: int) -> int | None:
    if nanoseconds == _UTIME_OMIT:
        return None
    if nanoseconds == _UTIME_NOW:
        return _now_ms()
    return int(seconds) * 1000 + int(nanoseconds) // 1_000_000


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
