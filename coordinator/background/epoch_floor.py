"""Where datanodes, time and operators meet `epochs`: what is seen of other epochs, and when the floor rises."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NoReturn

from peacefs.coordinator.cluster.garbage import Garbage
from peacefs.coordinator.cluster.unreferenced_chunks import Unclaimed, UnclaimedCounts
from peacefs.coordinator.metadata.epochs import Epochs
from peacefs.coordinator.metadata.group_commit import no_room
from peacefs.coordinator.metadata.store import MetadataFault, MetadataFull, Reader
from peacefs.coordinator.operations.context import Commit
from peacefs.protocol.ids import NodeId
from peacefs.protocol.limits import unreferenced_chunk_kept_s

log = logging.getLogger("peacefs.coordinator")


class EpochDesk:
    """The epoch and the floor of one coordinator, with what is said of them in its log."""

    def __init__(
        self,
        epochs: Epochs,
        reader: Reader,
        commit: Commit,
        unclaimed: Unclaimed,
        on_fault: Callable[[MetadataFault], NoReturn],
    ) -> None:
        """`on_fault` is called when the metadata can no longer be written."""
        self._epochs = epochs
        self._reader = reader
        self._commit = commit
        self._unclaimed = unclaimed
        self._on_fault = on_fault

    def epoch(self) -> int:
        return self._epochs.numbering.epoch

    def seen(self, node: NodeId, epoch: int) -> None:
        """A datanode, which is to be told our epoch, has seen this one. Raises ServiceUnready on a full disk."""
        before = self.epoch()
        try:
            is_older = self._epochs.accept(node, epoch)
        except MetadataFull:
            raise no_room() from None
        except MetadataFault as fault:
            self._on_fault(fault)
        if is_older:
            log.warning(
                "datanode %s has seen epoch %d, this metadata was of epoch %d: it was restored from a backup. "
                "Chunks that it does not know are kept until the floor is released; the epoch is %d now",
                node,
                epoch,
                before,
                self.epoch(),
            )

    def garbage(self) -> Garbage:
        """Return which chunks that no file refers to may be deleted."""
        return self._epochs.garbage

    async def raise_floor(self, now_s: float) -> None:
        """Commit, where it is time, that what was drawn a while ago is settled; to be called at every tick."""
        change = self._epochs.advance(now_s)
        if change is not None:
            self._epochs.advanced(await self._commit(change))

    async def release_floor(self) -> UnclaimedCounts | None:
        """What may be deleted from now on; None when the floor was not held."""
        if not await self._commit(lambda tx: tx.release_floor()):
            return None
        counts = self._unclaimed.counts(self.epoch())
        log.warning(
            "the floor was released: %d chunks of earlier epochs that no file refers to will be deleted in %.0f "
            "minutes, but for those that writers say that they hold",
            counts.chunks_of_earlier_epochs,
            unreferenced_chunk_kept_s / 60,
        )
        return counts
