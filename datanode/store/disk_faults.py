"""Classifies disk errors, and closes files after them."""

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
    """Return whether the disk or quota is full. Earlier data is then unchanged."""
    return error.errno in _NO_ROOM


def is_of_the_medium(error: OSError) -> bool:
    """Return whether the disk itself has failed, as opposed to an impossible request."""
    return error.errno in _OF_THE_MEDIUM


def is_read_only(error: OSError) -> bool:
    """Return whether the disk refuses all changes."""
    return error.errno == errno.EROFS


def named_fault(error: OSError, doing: str) -> ChunkError:
    """Return DiskFull or DiskFault for an OSError that happened while `doing`."""
    kind = DiskFull if is_no_room(error) else DiskFault
    return kind(f"{doing}: {error.strerror or error}")


def close_quietly(file: fx.File) -> fx.Steps[None]:
    """Close a file and ignore errors, because the caller already knows the result that matters."""
    with contextlib.suppress(OSError):
        yield from fx.close_file(file)


def closing(file: fx.File, steps: fx.Steps[T]) -> fx.Steps[T]:
    """Run `steps` and then close `file`, even after an error."""
    try:
        result = yield from steps
    except Exception:
        yield from close_quietly(file)
        raise
    yield from close_quietly(file)
    return result
