"""Quotas: what directories may hold, and hold."""

from __future__ import annotations

from abc import ABC, abstractmethod

from peacefs.coordinator.metadata.model import InodeId, NamespaceUsage, Quota


class QuotaReader(ABC):
    """Reads committed state."""

    @abstractmethod
    def quota(self, directory: InodeId) -> Quota | None: ...

    @abstractmethod
    def quota_directories(self) -> frozenset[InodeId]:
        """All that have a quota."""

    @abstractmethod
    def tree_usage(self, top: InodeId) -> NamespaceUsage:
        """Return what a tree holds now, its top included. Reads all of it, in about 2 us an entry."""


class QuotaChanges(ABC):
    """Part of a transaction."""

    @abstractmethod
    def set_quota(self, directory: InodeId, quota: Quota) -> None: ...

    @abstractmethod
    def drop_quota(self, directory: InodeId) -> None: ...

    @abstractmethod
    def charge_quota(self, directory: InodeId, change: NamespaceUsage) -> None:
        """Changes what a directory that has a quota is said to hold."""
