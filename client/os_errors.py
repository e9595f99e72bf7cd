"""Translates our errors into Python's OSErrors, for callers that use the cluster as an ordinary file system."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from peacefs.protocol.errors import (
    AccessDenied,
    BadRequest,
    DirectoryFull,
    DiskFull,
    FileAlreadyExists,
    FileChanged,
    FileNotFound,
    LeaseError,
    ParentNotDirectory,
    PathIsDirectory,
    PathIsNotDirectory,
    PathIsNotEmptyDirectory,
    PathLimitExceeded,
    PathThroughFile,
    PeacefsError,
    PeerTimeout,
    PeerUnreachable,
    QuotaExceeded,
    RenameRefused,
    ServiceUnready,
    SnapshotIsReadOnly,
    SnapshotRefused,
    Unsupported,
)

#: The first matching class determines the errno; all other errors get EIO. OSError chooses its subclass by errno.
_NUMBERS: tuple[tuple[type[PeacefsError], int], ...] = (
    (FileNotFound, errno.ENOENT),
    (DirectoryFull, errno.ENOSPC),
    (FileAlreadyExists, errno.EEXIST),
    (ParentNotDirectory, errno.ENOTDIR),
    (PathIsNotDirectory, errno.ENOTDIR),
    (PathThroughFile, errno.ENOTDIR),
    (PathIsDirectory, errno.EISDIR),
    (PathIsNotEmptyDirectory, errno.ENOTEMPTY),
    (PathLimitExceeded, errno.ENAMETOOLONG),
    (FileChanged, errno.ESTALE),
    (RenameRefused, errno.EINVAL),
    (SnapshotRefused, errno.EBUSY),
    (SnapshotIsReadOnly, errno.EROFS),
    (AccessDenied, errno.EACCES),
    (QuotaExceeded, errno.EDQUOT),
    (DiskFull, errno.ENOSPC),
    (LeaseError, errno.EBUSY),
    (ServiceUnready, errno.EBUSY),
    (Unsupported, errno.EOPNOTSUPP),
    (BadRequest, errno.EINVAL),
    (PeerTimeout, errno.ETIMEDOUT),
    (PeerUnreachable, errno.ECONNREFUSED),
)


def as_os_error(error: PeacefsError) -> OSError:
    """Return an OSError with the same message."""
    number = next((number for kind, number in _NUMBERS if isinstance(error, kind)), errno.EIO)
    return OSError(number, error.message)


@contextlib.contextmanager
def os_errors() -> Iterator[None]:
    """Translate errors raised in the block into OSErrors: FileNotFoundError, PermissionError, ..."""
    try:
        yield
    except PeacefsError as error:
        raise as_os_error(error) from error
