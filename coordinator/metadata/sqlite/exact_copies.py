"""Copies of a store for coordinators that follow the same journal. Unlike backups, they are equal in every row."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import apsw

from peacefs.coordinator.metadata.log.segments import LogDamaged
from peacefs.protocol.errors import PeacefsError, StartupError
from peacefs.runtime.disk_files import sync_directory

from . import file as metadata_file
from .backup import nameless_copy, set_aside
from .connections import StoresDiffer, connect
from .log_state import apply_log, numbers_of
from .row_digest import DIFFERS_KEY
from .store_place import StorePlace


def make(store: Path) -> BinaryIO:
    """Return an open, unlinked file with a copy of a store that this process has open. Raises PeacefsError."""
    ending = f".joining-{os.getpid()}-{os.urandom(4).hex()}"
    return nameless_copy(store, ending, lambda done, total: None, is_exact=True)


@contextlib.contextmanager
def staged(store: Path) -> Iterator[Path]:
    """Yield a path for a copy. After the block, the copy replaces the store.

    Raises StartupError, PeacefsError.
    """
    place = StorePlace.claim(store)
    copying = store.with_name(store.name + ".joining")
    try:
        copying.unlink(missing_ok=True)
        yield copying
        metadata_file.verify(copying)
        metadata_file.sync(copying)
        set_aside(store)
        copying.rename(store)
        sync_directory(str(store.absolute().parent))
        metadata_file.provide_sums(store)
    except OSError as error:
        raise PeacefsError(f"cannot write {copying}: {error.strerror or error}") from None
    finally:
        place.close()
        with contextlib.suppress(OSError):
            copying.unlink(missing_ok=True)


def leave_journal(store: Path) -> bool:
    """Detach a store, which must not be open, from its journal. Return whether it followed one.

    Raises StartupError.
    """
    place = StorePlace.claim(store)
    try:
        if not store.exists():
            raise StartupError(f"{store} is not there")
        metadata_file.verify(store)
        metadata_file.provide_sums(store)
        followed = numbers_of(store).journal
        with contextlib.closing(connect(store)) as connection:
            with contextlib.suppress(StoresDiffer):
                apply_log(store, connection)
            # Apply the rest although the store differs from the leader's: the operator has decided that this store
            # is intact.
            apply_log(store, connection)
        metadata_file.change_rows(
            store,
            [
                ("UPDATE meta SET value = '' WHERE key = 'journal'", ()),
                ("UPDATE meta SET value = 0 WHERE key = 'journal_number'", ()),
                ("DELETE FROM meta WHERE key = ?", (DIFFERS_KEY,)),
            ],
        )
        return bool(followed)
    except (apsw.Error, LogDamaged) as error:
        raise StartupError(f"cannot write {store}: {error}") from None
    finally:
        place.close()
