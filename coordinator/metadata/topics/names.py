"""Names: inodes, entries, and what has lost its name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from peacefs.coordinator.metadata.model import Discarded, Inode, InodeId, Origin, RightsChange


class NameReader(ABC):
    """Reads committed state."""

    @abstractmethod
    def follow(self, names: Sequence[str]) -> tuple[list[InodeId], Inode]:
        """Follow names from the root, as far as they exist, in one look-up unless there are very many.

        Return the inodes passed, the root's first, and the last one.
        """

    @abstractmethod
    def pass_through(self, names: Sequence[str]) -> list[Inode]:
        """The same inodes, with all that is to be known of each."""

    @abstractmethod
    def child(self, parent: InodeId, name: str) -> InodeId | None:
        """The inode of an entry."""

    @abstractmethod
    def child_inode(self, parent: InodeId, name: str) -> Inode | None:
        """Return what an entry names, in one look-up."""

    @abstractmethod
    def origin(self, parent: InodeId, name: str) -> Origin | None:
        """Return where an entry came from, if a rename put it there."""

    @abstractmethod
    def inode(self, inode: InodeId) -> Inode | None: ...

    @abstractmethod
    def has_children(self, directory: InodeId) -> bool: ...

    @abstractmethod
    def children(self, directory: InodeId, after: str, limit: int) -> list[tuple[str, Inode]]:
        """Entries in byte order of their names, those after the name `after` ("" for all)."""

    @abstractmethod
    def entries(self, parent: InodeId, name: str, limit: int) -> list[tuple[InodeId, str, InodeId]]:
        """The next names in any directory after (parent, name), as (parent, name, inode): begin after (0, "")."""

    @abstractmethod
    def count_children(self, directory: InodeId, after: str, limit: int) -> int:
        """Count the entries that follow the name `after`, no further than `limit`."""

    @abstractmethod
    def ancestors(self, inode: InodeId) -> list[tuple[InodeId, str]]:
        """The entries that lead down to an inode, the root's first, as (parent, name)."""

    @abstractmethod
    def is_in_tree(self, inode: InodeId) -> bool:
        """Return whether a path leads to an inode: false in a deleted tree, and before it has a name."""

    @abstractmethod
    def attributes(self, inode: InodeId) -> dict[str, bytes]:
        """The extended attributes of an inode by name, in order; its `attributes_tx` says if there are any."""

    @abstractmethod
    def next_discarded(self) -> Discarded | None: ...


class NameChanges(ABC):
    """Part of a transaction."""

    @abstractmethod
    def add_inode(self, inode: Inode) -> InodeId:
        """Stores a new inode under a number of its own, which is returned; `inode.inode` does not count."""

    @abstractmethod
    def change_inode(self, inode: Inode) -> None:
        """Replaces all but the kind of an inode that exists."""

    @abstractmethod
    def set_attribute(self, inode: InodeId, name: str, value: bytes) -> None:
        """Give an inode an extended attribute, in place of the one it had; it goes with the inode."""

    @abstractmethod
    def drop_attribute(self, inode: InodeId, name: str) -> None:
        """Drop an extended attribute that an inode has."""

    @abstractmethod
    def touch(self, directory: InodeId, now_ms: int) -> None:
        """Raises a modification time to `now_ms`; never lowers it."""

    @abstractmethod
    def remove_inode(self, inode: InodeId, at_tx: int | None = None) -> None: ...

    @abstractmethod
    def rights_changes(self, since_tx: int) -> list[RightsChange] | None:
        """All since a transaction; None if that is longer ago, or more, than is remembered."""

    @abstractmethod
    def entry_count(self, directory: InodeId) -> int:
        """Return how many entries a directory has: counted once, then remembered for a while."""

    @abstractmethod
    def add_entry(self, parent: InodeId, name: str, inode: InodeId, origin: Origin | None = None) -> None:
        """The name must be free."""

    @abstractmethod
    def remove_entry(self, parent: InodeId, name: str, at_tx: int | None = None) -> None: ...

    @abstractmethod
    def discard(self, inode: InodeId, at_tx: int | None = None) -> None:
        """Queues an inode to be reclaimed."""

    @abstractmethod
    def undiscard(self, inode: InodeId) -> None:
        """Takes an inode out of the reclaim queue."""

    @abstractmethod
    def stage(self, inode: InodeId) -> None:
        """Notes an inode without a name that a later request is to name: at the next start it is discarded."""

    @abstractmethod
    def unstage(self, inode: InodeId) -> bool:
        """Take back a note of `stage`; return whether there was one."""
