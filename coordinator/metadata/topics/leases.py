"""Leases: who may extend a file."""

from __future__ import annotations

from abc import ABC, abstractmethod

from peacefs.coordinator.metadata.model import InodeId, Lease


class LeaseReader(ABC):
    """Reads committed state."""

    @abstractmethod
    def lease(self, inode: InodeId) -> Lease | None:
        """The last lease of a file, if what was begun with it has neither ended nor been overtaken."""


class LeaseChanges(ABC):
    """Part of a transaction."""

    @abstractmethod
    def set_lease(self, inode: InodeId, lease: Lease) -> None:
        """Gives a file a lease, in place of the one it had."""

    @abstractmethod
    def drop_lease(self, inode: InodeId) -> None:
        """The file has no lease, whether it had one or not."""
