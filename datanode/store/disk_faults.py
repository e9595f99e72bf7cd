"""Faults of the disk: given their names, and kept from leaving files open."""

from __future__ import annotations

import contextlib
import errno
from typing import TypeVar

from peacefs.protocol.errors import ChunkError, DiskFault, DiskFull
from peacefs.runtime import effects as fx

T = TypeVar("T")
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_OF_THE_MEDIUM = (
    errno.EIO,
    errno.ENXIO,
    errno.ENODEV,
    errno.EUCLEAN,
    errno.EMEDIUMTYPE,
    errno.ENOMEDIUM,
    errno.ENOTCONN,
    errno.ESTALE,
    errno.ETIMEDOUT,
    errno.EREMOTEIO,
)


def is_no_room(error: OSError) -> bool:
    """Return whether the disk (or the quota) is full, which leaves earlier data as it was."""
    return error.errno in _NO_ROOM


def is_of_the_medium(error: OSError) -> bool:
    """Return whether the disk itself has failed, as opposed to an impossible request."""
    return error.errno in _OF_THE_MEDIUM


def is_read_only(error: OSError) -> bool:
    """Return whether the disk refuses every change from now on."""
    return error.errno == errno.EROFS


def named_fault(error: OSError, doing: str) -> ChunkError:
    """The error of our tree for what the disk said while `doing`."""
    kind = DiskFull if is_no_room(error) else DiskFault
    return kind(f"{doing}: {error.strerror or error}")


def close_quietly(file: fx.File) -> fx.Steps[None]:
    """Closes a file about which everything that matters is known already."""
    with contextlib.suppress(OSError):
        yield from fx.close_file(file)


def closing(file: fx.File, steps: fx.Steps[T]) -> fx.Steps[T]:
    """Runs `steps` and then closes `file`, after a fault too."""
    try:
        result = yield from steps
    except Exception:
        yield from close_quietly(file)
        raise
    yield from close_quietly(file)
    return result
