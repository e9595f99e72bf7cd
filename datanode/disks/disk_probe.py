"""Whether a disk still works at all: it is asked to take a few bytes, and to give them back from the medium."""

from __future__ import annotations

import contextlib
import errno
import os

from peacefs.datanode.store.disk_faults import close_quietly
from peacefs.protocol.runtime import effects as fx

_PATTERN = bytes(range(256)) * 16


def probe(path: str) -> fx.Steps[None]:
    """Makes, reads and removes a file at `path`. Raises OSError."""
    file = yield from fx.open_file(path, create=True)
    try:
        yield from fx.append(file, _PATTERN)
        yield from fx.sync(file)
        yield from fx.drop_cached(file)
        found = yield from fx.read_at(file, 0, len(_PATTERN))
    except OSError:
        yield from _clear_away(file, path)
        raise
    yield from _clear_away(file, path)
    if found != _PATTERN:
        raise OSError(errno.EIO, f"{os.strerror(errno.EIO)}: it gives back other bytes than it took", path)


def _clear_away(file: fx.File, path: str) -> fx.Steps[None]:
    yield from close_quietly(file)
    with contextlib.suppress(OSError):
        yield from fx.remove(path)
