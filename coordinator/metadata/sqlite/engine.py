"""SQLite as an engine: one file, with its log and the record of its last commit beside it."""

from __future__ import annotations

import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random
from typing import BinaryIO

from peacefs.coordinator.journal.writer import JournalWriter
from peacefs.coordinator.limits import names_memory_bytes_default
from peacefs.coordinator.metadata.backup import BackupMaker
from peacefs.coordinator.metadata.engine import Accepted, CheckProgress, Engine, Findings, Progress, Restored
from peacefs.coordinator.metadata.log.segments import list_segments
from peacefs.coordinator.metadata.store import Metadata

from . import backup, check, exact_copies, lost_commits
from .file import STORE_NAME
from .online_backup import OnlineBackup
from .store import MetadataInMemory, open_store, store_in_memory


class SqliteEngine(Engine):
    """Keeps nothing itself."""

    file_prefix = STORE_NAME

    def open(
        self,
        directory: Path,
        *,
        owner: str,
        journal: JournalWriter | None = None,
        names_memory_bytes: int = names_memory_bytes_default,
    ) -> Metadata:
        return open_store(
            directory / STORE_NAME,
            owner=owner,
            journal=journal,
            names_memory_bytes=names_memory_bytes,
            has_process=True,
        )

    def exists(self, directory: Path) -> bool:
        return (directory / STORE_NAME).exists()

    def exact_copy(self, directory: Path) -> BinaryIO:
        return exact_copies.make(directory / STORE_NAME)

    def staged_store(self, directory: Path) -> AbstractContextManager[Path]:
        return exact_copies.staged(directory / STORE_NAME)

    def leave_journal(self, directory: Path) -> bool:
        return exact_copies.leave_journal(directory / STORE_NAME)

    def in_memory(self, *, cluster_id: str = "in-memory", owner: str = "peacefs") -> MetadataInMemory:
        return store_in_memory(cluster_id=cluster_id, owner=owner)

    def online_backup(self, directory: Path) -> BackupMaker:
        return OnlineBackup(directory / STORE_NAME)

    def back_up(self, directory: Path, target: Path, progress: Progress, *, replace: bool = False) -> None:
        backup.back_up(directory / STORE_NAME, target, progress, replace=replace)

    def staged(self, target: Path, *, replace: bool) -> AbstractContextManager[Path]:
        return backup.staged(target, replace=replace)

    def restore(
        self,
        backup_file: Path,
        directory: Path,
        progress: Progress,
        rng: Random,
        *,
        replace: bool,
        with_log: bool = False,
    ) -> Restored:
        store = directory / STORE_NAME
        return backup.restore(backup_file, store, progress, rng, replace=replace, with_log=with_log)

    def check(self, directory: Path, begun: CheckProgress) -> Findings:
        return check.check(directory / STORE_NAME, begun)

    def accept_loss(self, directory: Path, rng: Random) -> Accepted | None:
        return lost_commits.accept(directory / STORE_NAME, rng)

    def room_bytes(self, directory: Path) -> int:
        return shutil.disk_usage(directory).free

    def size_bytes(self, directory: Path) -> int:
        store = directory / STORE_NAME
        files = (store, store.with_name(f"{STORE_NAME}-wal"), *(path for _, path in list_segments(store)))
        return sum(_size_of(file) for file in files)


def _size_of(file: Path) -> int:
    """Segments and SQLite's log come and go."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0
