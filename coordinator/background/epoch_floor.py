"""The epoch and the GC floor: take in epochs that datanodes have seen, and raise and release the floor."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NoReturn

from peacefs.coordinator.cluster.unreferenced_chunks import UnreferencedCounts
from peacefs.coordinator.core import CoordinatorCore
from peacefs.coordinator.metadata.epochs import Begun, accept
from peacefs.coordinator.metadata.group_commit import no_room
from peacefs.coordinator.metadata.reader import Reader
from peacefs.coordinator.metadata.store import Metadata, MetadataFault, MetadataFull
from peacefs.coordinator.operations.durability.commits import Commits
from peacefs.protocol.errors import ServiceUnready
from peacefs.protocol.ids import NodeId
from peacefs.protocol.limits import unreferenced_chunk_kept_s

log = logging.getLogger("peacefs.coordinator")

_ADVICE = (
    "Restore a backup (`peacefs metadata restore`), or go on without them (`peacefs metadata accept-loss`); until "
    "then names can be read and not changed, and datanodes delete nothing"
)


class EpochService:
    """The epoch and the floor of one coordinator. Logs what happens to them."""

    def __init__(
        self,
        core: CoordinatorCore,
        metadata: Metadata,
        reader: Reader,
        commits: Commits,
        on_fault: Callable[[MetadataFault], NoReturn],
    ) -> None:
        """`on_fault` is called when the metadata can no longer be written.

        `commits` must accept changes even while commits are missing.
        """
        self._core = core
        self._epochs = core.epochs
        self._metadata = metadata
        self._reader = reader
        self._commit = commits
        #: For changes of the namespace: refuses them while commits are missing.
        self.commit = commits.unless(self.refuse_without_commits)
        self._on_fault = on_fault
        #: True while commits are missing and no operator has accepted their loss. Nothing may be changed then.
        self.lacks_commits = False

    def begin(self, begun: Begun, now_s: float) -> None:
        """Lead from now on, in a drawn epoch."""
        self._epochs.begin(begun.epoch, now_s, found_tx=begun.found_tx, floor=begun.floor)
        self.lacks_commits = self._reader.lacks_commits()
        if self.lacks_commits:
            log.error("commits of this metadata are missing. %s", _ADVICE)

    def epoch(self) -> int:
        return self._epochs.numbering.epoch

    def refuse_without_commits(self) -> None:
        """Raise ServiceUnready while commits are missing: changes now would diverge from the missing ones."""
        if self.lacks_commits:
            raise ServiceUnready(
                f"commits of the coordinator's metadata are missing: nothing is changed. {_ADVICE}"
            )

    def seen(self, node: NodeId, epoch: int, commit: int = 0) -> None:
        """Take in what a datanode has seen, before it is told our epoch. Raises ServiceUnready."""
        before, lacked = self.epoch(), self.lacks_commits
        try:
            is_older = accept(self._epochs, self._metadata, node, epoch, commit)
        except MetadataFull:
            raise no_room() from None
        except MetadataFault as fault:
            self._on_fault(fault)
        self.lacks_commits = self._reader.lacks_commits()
        if self.lacks_commits and not lacked:
            log.error(
                "datanode %s has heard of commit %d, which this metadata lacks: names that were acknowledged are "
                "missing. %s",
                node,
                commit,
                _ADVICE,
            )
        if is_older and self.epoch() != before:
            log.warning(
                "datanode %s has seen epoch %d, this metadata was of epoch %d: it was restored from a backup. "
                "Chunks that it does not know are kept until the GC floor is released; the epoch is now %d",
                node,
                epoch,
                before,
                self.epoch(),
            )

    async def raise_gc_floor(self, now_s: float) -> None:
        """Raise the floor over numbers that were drawn long enough ago, if it is time. Call it at every tick."""
        self.refuse_without_commits()
        change = self._epochs.advance(now_s)
        if change is not None:
            self._epochs.advanced(await self._commit(change, in_any_case=True))

    async def release_gc_floor(self) -> UnreferencedCounts | None:
        """Release the floor. Return what may be deleted from now on; None if the floor was not held.

        Raises ServiceUnready.
        """
        self.refuse_without_commits()
        if not await self._commit(lambda tx: tx.release_gc_floor()):
            return None
        counts = self._core.cluster.chunks.unreferenced.counts(self.epoch())
        log.warning(
            "the GC floor was released: %d chunks of earlier epochs that no file refers to will be deleted in"
            " %.0f minutes, except those that writers still hold",
            counts.chunks_of_earlier_epochs,
            unreferenced_chunk_kept_s / 60,
        )
        return counts

    async def accept_loss(self) -> bool:
        """Accept that commits are missing; the floor stays held. Return whether any were missing."""
        accepted = await self._commit(lambda tx: tx.accept_lost_commits())
        self.lacks_commits = self._reader.lacks_commits()
        if accepted:
            log.warning("the loss of commits was accepted: names can be changed again. The GC floor stays held")
        return accepted
