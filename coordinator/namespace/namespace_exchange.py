"""Exchange: two names of one directory trade what they name, for as many pairs as must change together.

So a tree that was prepared out of sight takes the place of another in one commit, and the other is still there.
Both names of a pair are in one directory: no tree crosses the boundary of a quota.
"""

from __future__ import annotations

from collections.abc import Sequence

from peacefs.coordinator.metadata.model import InodeId
from peacefs.coordinator.metadata.store import Transaction
from peacefs.protocol.errors import FileNotFound, IllegalChange

from .paths import NamespacePath
from .resolution import Way, find
from .snapshots import refuse_snapshotted

Pair = tuple[NamespacePath, NamespacePath]


def exchange(tx: Transaction, pairs: Sequence[Pair], now_ms: int) -> None:
    """Raises FileNotFound, IllegalChange for a pair that is not of one directory, SnapshotRefused."""
    for one, other in pairs:
        if one.is_root or other.is_root or one == other or one.components[:-1] != other.components[:-1]:
            raise IllegalChange(f"{one} and {other} are not two names of one directory")
    for one, other in pairs:
        parent, first = _existing(tx, one)
        _, second = _existing(tx, other)
        refuse_snapshotted(tx, first, one)
        refuse_snapshotted(tx, second, other)
        tx.remove_entry(parent, one.name)
        tx.remove_entry(parent, other.name)
        tx.add_entry(parent, one.name, second)
        tx.add_entry(parent, other.name, first)
        tx.touch(parent, now_ms)


def _existing(tx: Transaction, path: NamespacePath) -> tuple[InodeId, InodeId]:
    """The directory of a path, and what it names."""
    way: Way = find(tx, path)
    if not way.is_whole:
        raise FileNotFound(f"File does not exist: {path}")
    return way.parent, way.last
