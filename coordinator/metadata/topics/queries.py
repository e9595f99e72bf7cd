"""Queries: their runs, and those that are supervised."""

from __future__ import annotations

from abc import ABC, abstractmethod

from peacefs.coordinator.metadata.model import InodeId, QueryRecord, RecordedRun


class QueryReader(ABC):
    """Reads committed state."""

    @abstractmethod
    def run(self, directory: InodeId) -> RecordedRun | None:
        """The latest run of a directory, if it ever had one."""

    @abstractmethod
    def runs(self, after: InodeId, limit: int) -> list[tuple[InodeId, RecordedRun]]:
        """Directories with a run in order of their inodes, those after `after` (0 for all)."""

    @abstractmethod
    def supervised_queries(self) -> list[QueryRecord]:
        """In order of their names."""


class QueryChanges(ABC):
    """Part of a transaction."""

    @abstractmethod
    def set_run(self, directory: InodeId, run: RecordedRun) -> None:
        """Gives a directory a run, in place of the one it had; it goes with the directory."""

    @abstractmethod
    def record_query(self, record: QueryRecord) -> None:
        """Replaces what was recorded of the supervised query of this name."""

    @abstractmethod
    def forget_query(self, name: str) -> None: ...
