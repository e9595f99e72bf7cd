"""Copies of files and trees for WebHDFS, REST and frames."""

from __future__ import annotations

from peacefs.coordinator.limits import reclaim_entries_per_commit
from peacefs.coordinator.metadata.model import TreeSummary
from peacefs.coordinator.namespace import copy as copies
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.coordinator.namespace.snapshots import changeable_path

from .context import OperationContext
from .names import Names


class CopyOperations:
    """Copies files and trees. The source may lie in a snapshot."""

    def __init__(
        self, context: OperationContext, names: Names, per_commit: int = reclaim_entries_per_commit
    ) -> None:
        self._ctx = context
        self._names = names
        self._per_commit = per_commit

    async def copy(
        self, source: str, target: str, user: str, *, preserve: bool = False, request_id: str = ""
    ) -> TreeSummary:
        """Copy a file or tree to exactly `target`, which must not exist but whose parent must. Return what was
        copied.

        A repeated request id copies once. Raises as `namespace_copy.begin_copy` does, and SnapshotRefused if the
        copied snapshot is deleted meanwhile.
        """
        wanted = copies.CopyToMake(
            parse_path(source),
            changeable_path(target),
            self._ctx.caller(user),
            preserve,
            request_id,
            self._ctx.now_ms(),
        )
        await self._ctx.under_construction.settle_trees(wanted.source, wanted.target)
        made = await self._ctx.commit(lambda tx: copies.begin_copy(tx, wanted, self._per_commit))
        if isinstance(made, copies.TreeCopy):
            made = await self._grow(made)
        self._ctx.cluster.load(made.changed)
        return made.copied

    async def _grow(self, copy: copies.TreeCopy) -> copies.CopyResult:
        try:
            while not copy.growth.is_whole:
                copy = await self._step(copy)
            return await self._ctx.commit(lambda tx: copies.finish_copy(tx, copy))
        except BaseException:
            self._names.give_up(lambda tx: copies.give_up_copy(tx, copy))
            raise
        finally:
            self._names.reclaim_soon()

    async def _step(self, copy: copies.TreeCopy) -> copies.TreeCopy:
        return await self._ctx.commit(lambda tx: copies.copy_step(tx, copy, self._per_commit))
