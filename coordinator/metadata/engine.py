"""A storage engine beside the store that it opens: backups, restores, checks, and the room that it takes.

An engine is a folder beside `sqlite/` and a line in `engines`. All works on the directory of a coordinator; what
files the engine keeps there, and in which format, is its own business.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import BinaryIO, NamedTuple

from peacefs.coordinator.journal.writer import JournalWriter
from peacefs.coordinator.limits import names_memory_bytes_default

from .backup import BackupMaker
from .store import Metadata

#: Told of bytes copied and bytes in all, after each step; what it raises ends the copying.
Progress = Callable[[int, int], None]
#: Told of each step of a check that begins: its name, its number, and how many there are.
CheckProgress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Restored:
    """The outcome of a restore: the new epoch of the store, and the path of the former store, if there was one.

    `replayed` is the number of commits after the backup that were taken from the log.
    """

    epoch: int
    replaced: Path | None
    replayed: int = 0


@dataclass(frozen=True)
class Problem:
    """A broken invariant: how often it is broken, and some examples."""

    name: str
    found: int
    examples: list[str]


@dataclass
class Findings:
    """The findings of a check. `files`, `directories` and `chunks` are None when the store cannot be trusted.

    They leave out the last `commits_behind` commits, which the log has and the image does not have yet.
    """

    problems: list[Problem] = field(default_factory=list)
    files: int | None = None
    directories: int | None = None
    chunks: int | None = None
    commits_behind: int = 0


class Accepted(NamedTuple):
    """The loss in words, the epoch that the store has now, and where the damaged log was kept, if any."""

    loss: str
    epoch: int
    log: Path | None


class Engine(ABC):
    """A way to keep metadata in the directory of a coordinator. Knows no clock but the file system's."""

    #: The beginning of the names of all of its files.
    file_prefix: str

    @abstractmethod
    def open(
        self,
        directory: Path,
        *,
        owner: str,
        journal: JournalWriter | None = None,
        names_memory_bytes: int = names_memory_bytes_default,
    ) -> Metadata:
        """Open the store of a directory, or make one with an empty root directory that belongs to `owner`.

        With a journal every commit is an entry of it first, and commits that the store lacks come from there.

        Raises StartupError, and has changed nothing, when another coordinator has it open, or when it is foreign,
        damaged, of a newer peacefs, or lacks commits that were acknowledged.
        """

    @abstractmethod
    def exists(self, directory: Path) -> bool:
        """Return whether there is a store in a directory."""

    @abstractmethod
    def exact_copy(self, directory: Path) -> BinaryIO:
        """Return a file that has no name, with the store of a directory as it is, for a coordinator that joins.

        Raises PeacefsError.
        """

    @abstractmethod
    def staged_store(self, directory: Path) -> AbstractContextManager[Path]:
        """Yield a path to write an exact copy to; it is checked, and becomes the store of a directory afterwards.

        A store that was there is set aside. Raises StartupError, PeacefsError.
        """

    @abstractmethod
    def leave_journal(self, directory: Path) -> bool:
        """Have the store of a directory follow no journal any more; return whether it did. Raises StartupError."""

    @abstractmethod
    def in_memory(self, *, cluster_id: str = "in-memory", owner: str = "peacefs") -> Metadata:
        """Return a store that lasts as long as the object."""

    @abstractmethod
    def online_backup(self, directory: Path) -> BackupMaker:
        """Return what makes copies of a store that this process has open."""

    @abstractmethod
    def back_up(self, directory: Path, target: Path, progress: Progress, *, replace: bool = False) -> None:
        """Copy the store to a file, whether a coordinator serves from it or not.

        Raises StartupError for a store that is none of ours, FileAlreadyExists, PeacefsError.
        """

    @abstractmethod
    def staged(self, target: Path, *, replace: bool) -> AbstractContextManager[Path]:
        """Yield a path to write a copy to, which is checked, made durable and renamed to `target` afterwards."""

    @abstractmethod
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
        """Replace the store of a directory by a backup. `with_log` also applies the later changes from its log.

        Raises StartupError.
        """

    @abstractmethod
    def check(self, directory: Path, begun: CheckProgress) -> Findings:
        """Check a store, whether a coordinator serves from it or not. Raises StartupError."""

    @abstractmethod
    def accept_loss(self, directory: Path, rng: Random) -> Accepted | None:
        """Make a store that lacks commits one that can be opened without them; None where nothing is missing."""

    @abstractmethod
    def room_bytes(self, directory: Path) -> int:
        """Return what the file system of the store has left."""

    @abstractmethod
    def size_bytes(self, directory: Path) -> int:
        """Return what the store takes."""
