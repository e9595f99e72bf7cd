"""Epochs and GC floors: no number is drawn twice, and no needed chunk is taken for garbage.

A datanode remembers the highest epoch in which a coordinator accepted it. If a datanode that this coordinator has
not accepted yet knows an epoch that is not below ours, another coordinator used that epoch: our metadata was
restored from an older backup. Then our numbers move above all that were ever drawn, and the floor is held, so that
chunks written after the backup are kept. A datanode also remembers the last commit that it has heard of. If that
is later than the last commit of our metadata when this coordinator began, commits are missing; this is remembered
until an operator accepts the loss. Pure: `now_s` is monotonic. The methods return what must be made durable;
`begin_epoch` and `accept` write it.

The floor follows the drawn numbers with a delay, measured in time during which coordinators served (decision 27).
Its marks are committed, so the next coordinator continues from them. A living writer has its chunks kept, so a
chunk below the floor that is not kept remains garbage, in whatever order messages arrive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from peacefs.coordinator.metadata.garbage import Garbage
from peacefs.protocol.ids import ChunkId, NodeId, Numbering, first_of_epoch
from peacefs.protocol.limits import unreferenced_chunk_kept_s

from .store import Metadata
from .transaction import Transaction

# Interval in which the coordinator notes the numbers that have been drawn.
gc_floor_mark_interval_s: Final = 2.0
# At most this much time between two ticks counts as time in which the coordinator served.
gc_floor_step_s_max: Final = 20.0


@dataclass(frozen=True, slots=True)
class HoldFloor:
    """Commit this before the datanode is told our epoch, then call `Epochs.gc_floor_held`.

    `above` asks for an epoch above that number; None if ours is already above it.
    """

    commits_are_missing: bool
    above: int | None


class Epochs:
    """The numbering of the epoch that this coordinator begins, and the floor that follows it."""

    def __init__(
        self,
        numbering: Numbering,
        now_s: float,
        *,
        found_tx: int = 0,
        floor: ChunkId = 0,
        is_needed: Callable[[ChunkId], bool] = lambda chunk: False,
        settled_after_s: float = unreferenced_chunk_kept_s,
    ) -> None:
        """`found_tx` is the last commit of earlier coordinators. `is_needed` returns whether a chunk is kept, or
        belongs to a file whose publication was not announced yet.
        """
        self.numbering = numbering
        self._settled_after_s = settled_after_s
        self._interval_s = min(gc_floor_mark_interval_s, settled_after_s / 4)
        self._advanced_s = now_s
        self._found_tx = found_tx
        self._accepted: set[NodeId] = set()
        self._is_needed = is_needed
        self.garbage = Garbage(floor, is_needed)

    def begin(self, epoch: int, now_s: float, *, found_tx: int, floor: ChunkId) -> None:
        """Lead from now on, in a committed epoch. `found_tx` is the last commit of earlier leaders."""
        self.numbering.epoch = epoch
        self.numbering.drawn = 0
        self._found_tx = found_tx
        self._advanced_s = now_s
        self._accepted.clear()
        self.garbage = Garbage(floor, self._is_needed, self.garbage.round + 1)

    def shown(self, node: NodeId, epoch_seen: int, commit_seen: int = 0) -> HoldFloor | None:
        """Process what a datanode has seen. Return None if nothing is new: then it may be told our epoch."""
        limit = self.numbering.epoch if node in self._accepted else self.numbering.epoch - 1
        # If the node was accepted before, the commit may be our own.
        shows_missing = commit_seen > self._found_tx and node not in self._accepted
        if epoch_seen <= limit and not shows_missing:
            self._accepted.add(node)
            return None
        return HoldFloor(shows_missing, epoch_seen if epoch_seen > limit else None)

    def gc_floor_held(self, node: NodeId, epoch: int | None) -> None:
        """Record that what the datanode has shown is durable, and the new `epoch`, if one was requested.

        Do not call this if the commit failed. The datanode will connect again and show the same.
        """
        if epoch is not None:
            # Change the shared object, which everyone who draws numbers uses.
            self.numbering.epoch = epoch
            self.numbering.drawn = 0
        self._accepted.add(node)

    def advance(self, now_s: float) -> Callable[[Transaction], ChunkId] | None:
        """Return the change that raises the floor; None if it is not due. Call it often.

        Call `advanced` with the change's result when it is committed.
        """
        elapsed_s = now_s - self._advanced_s
        if elapsed_s < self._interval_s:
            return None
        self._advanced_s = now_s
        # While this process was blocked it heard nobody, so that time does not count as silence of writers.
        elapsed_ms = int(min(elapsed_s, gc_floor_step_s_max) * 1000)
        drawn = first_of_epoch(self.numbering.epoch) | self.numbering.drawn
        settled_after_ms = int(self._settled_after_s * 1000)

        def change(tx: Transaction) -> ChunkId:
            tx.advance_gc_floor(drawn, elapsed_ms, settled_after_ms)
            return tx.floor()

        return change

    def advanced(self, floor: ChunkId) -> None:
        """Take the committed floor."""
        self.garbage = Garbage(floor, self._is_needed, self.garbage.round + 1)


def epochs_of(metadata: Metadata, now_s: float, *, settled_after_s: float = unreferenced_chunk_kept_s) -> Epochs:
    """Return the epochs of a coordinator that does not lead yet."""
    return Epochs(Numbering(0), now_s, is_needed=metadata.reader().is_needed, settled_after_s=settled_after_s)


class Begun(NamedTuple):
    """A durably drawn epoch, and the state of the metadata before it."""

    epoch: int
    found_tx: int
    floor: ChunkId


def draw_epoch(metadata: Metadata, above: int = 0) -> Begun:
    """Draw another epoch, durably. Raises MetadataFull, MetadataFault."""
    found_tx = metadata.tx_durable
    epoch = metadata.begin_epoch(above)
    reader = metadata.reader()
    return Begun(epoch, found_tx, reader.floor())


def begin_epoch(metadata: Metadata, now_s: float, *, settled_after_s: float = unreferenced_chunk_kept_s) -> Epochs:
    """Draw an epoch, durably, and return the epochs of the coordinator that leads in it.

    Raises MetadataFull, MetadataFault.
    """
    epochs = epochs_of(metadata, now_s, settled_after_s=settled_after_s)
    begun = draw_epoch(metadata)
    epochs.begin(begun.epoch, now_s, found_tx=begun.found_tx, floor=begun.floor)
    return epochs


def accept(epochs: Epochs, metadata: Metadata, node: NodeId, epoch_seen: int, commit_seen: int = 0) -> bool:
    """Record what a datanode has seen, before it is told our epoch. Return whether our metadata is older.

    If the datanode has seen a commit that is missing, `Reader.lacks_commits` is True from then on. Raises
    MetadataFull, after which the caller must try again; MetadataFault.
    """
    hold = epochs.shown(node, epoch_seen, commit_seen)
    if hold is None:
        return False
    metadata.hold_gc_floor(commits_are_missing=hold.commits_are_missing)
    epochs.gc_floor_held(node, None if hold.above is None else metadata.begin_epoch(hold.above))
    return True
