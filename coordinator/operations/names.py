"""Operations on names: look up, make, move and delete them, and clean up after deletions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from peacefs.coordinator.limits import list_remaining_max, reclaim_entries_per_commit
from peacefs.coordinator.metadata.model import (
    ROOT,
    InodeId,
    InodeKind,
    InodeStatus,
    ListPage,
    RenameMode,
    TreeSummary,
)
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.coordinator.namespace import access_checks as checks
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace import snapshots
from peacefs.coordinator.namespace.create import checked_replication
from peacefs.coordinator.namespace.paths import SNAPSHOTS_NAME, NamespacePath, parse_path
from peacefs.coordinator.namespace.permissions import Access, Principal
from peacefs.coordinator.namespace.reclaim import forget_answers_step, reclaim_step
from peacefs.coordinator.namespace.rename import exchange
from peacefs.coordinator.namespace.retry_cache import Applied, RequestKey, cached_reply, run_once
from peacefs.coordinator.namespace.snapshots import changeable_path
from peacefs.protocol.errors import FileNotFound, PathIsNotEmptyDirectory

from .context import OperationContext
from .recursive_delete import RemovalRights
from .temporary_files import path_of
from .tree_counts import TreeCounts


class Names:
    """Looks names up at once, and changes them by commits. Paths are texts.

    `user` is the caller and owns what is made. A missing right raises AccessDenied. A change that is repeated
    under its `request_id` gets the first answer.
    """

    def __init__(self, context: OperationContext) -> None:
        self._ctx = context
        self._to_reclaim = True
        self._given_up: list[Callable[[Transaction], None]] = []
        #: Counts large trees for changes that affect quotas.
        self.trees = TreeCounts(context, self.give_up, self.reclaim_soon)

    async def status(self, path: str, user: str) -> InodeStatus:
        parsed, caller = parse_path(path), self._ctx.caller(user)
        under_construction = self._ctx.under_construction
        if under_construction.begun:
            await under_construction.settle(parsed)
        status = self._status(parsed, caller)
        if status.kind is InodeKind.FILE and under_construction.is_uploaded(status.inode):
            await under_construction.flush(status.inode)
            status = self._status(parsed, caller)
        return status

    def path_of(self, inode: InodeId) -> str:
        """Return the path of a file or directory. Raises FileNotFound. Rights are for the caller to check."""
        found = NamespacePath(()) if inode == ROOT else path_of(self._ctx.reader, inode)
        if found is None:
            raise FileNotFound(f"File does not exist: inode {inode}")
        return str(found)

    def _status(self, parsed: NamespacePath, caller: Principal) -> InodeStatus:
        if SNAPSHOTS_NAME not in parsed.components:
            checks.check_pass(self._ctx.reader, parsed, caller)
            return namespace.status(self._ctx.reader, parsed)
        place = self._locate(parsed, caller)
        if place is None:
            return snapshots.status_of_list(self._ctx.reader, parsed)
        checks.check_pass(place.reader, place.path, caller)
        return namespace.status(place.reader, place.path)

    async def list_page(
        self,
        path: str,
        user: str,
        start_after: str | None,
        limit: int,
        *,
        remaining_max: int = list_remaining_max,
    ) -> ListPage:
        """Return a page of a directory, and the number of entries after it, counted up to `remaining_max`."""
        parsed, caller = parse_path(path), self._ctx.caller(user)
        await self._ctx.under_construction.settle_listing(parsed)
        place = self._locate(parsed, caller)
        if place is None:
            return snapshots.list_page(self._ctx.reader, parsed, start_after, limit)
        checks.check_list(place.reader, place.path, caller)
        return namespace.list_page(place.reader, place.path, start_after, limit, remaining_max=remaining_max)

    async def content_summary(self, path: str, user: str) -> TreeSummary:
        parsed, caller = parse_path(path), self._ctx.caller(user)
        await self._ctx.under_construction.settle_trees(parsed)
        place = self._locate(parsed, caller)
        if place is None:
            raise FileNotFound(f"File does not exist: {parsed}")
        await self._ctx.in_turns(checks.check_summary(place.reader, place.path, caller))
        counted = await self._ctx.in_turns(namespace.count_tree(place.reader, place.path))
        quota = None if place.snapshot else namespace.quota(place.reader, place.path)
        return replace(counted, names_max=quota.names_max, bytes_max=quota.bytes_max) if quota else counted

    async def check_access(self, path: str, user: str, access: Access) -> None:
        """Check rights as HDFS's `access` does. Raises AccessDenied, FileNotFound."""
        parsed, caller = parse_path(path), self._ctx.caller(user)
        await self._ctx.under_construction.settle(parsed)
        place = self._locate(parsed, caller)
        if place is None:
            snapshots.status_of_list(self._ctx.reader, parsed)
            return
        checks.check_access(place.reader, place.path, caller, access)
        namespace.status(place.reader, place.path)

    def _locate(self, path: NamespacePath, caller: Principal) -> snapshots.SnapshotPlace | None:
        """Return the state in which to look a path up; None for the list of a directory's snapshots."""
        if SNAPSHOTS_NAME not in path.components:
            return snapshots.SnapshotPlace(self._ctx.reader, path)
        checks.check_way_to_snapshots(self._ctx.reader, path, caller)
        if snapshots.is_list_of_snapshots(path):
            return None
        return snapshots.locate(self._ctx.reader, path)

    async def mkdirs(
        self, path: str, user: str, permission: int, request_id: str = "", unmasked: int | None = None
    ) -> bool:
        def change(tx: Transaction, at: NamespacePath, caller: Principal) -> bool:
            checks.check_mkdirs(tx, at, caller)
            return namespace.mkdirs(tx, at, user, permission, self._ctx.now_ms(), unmasked)

        return await self._ctx.change(path, user, ("mkdirs", permission), request_id, change)

    async def rename(self, source: str, target: str, user: str, mode: RenameMode, request_id: str = "") -> bool:
        source_path, target_path = changeable_path(source), changeable_path(target)
        caller = self._ctx.caller(user)
        await self._ctx.under_construction.settle_trees(source_path, target_path)

        def change(tx: Transaction) -> Applied[bool]:
            checks.check_rename(tx, source_path, target_path, caller, mode)
            result = namespace.rename(tx, source_path, target_path, mode, self._ctx.now_ms())
            return Applied(result.done, result.freed)

        key = RequestKey(request_id, ("rename", str(source_path), str(target_path), user, mode.value))

        async def attempt() -> Applied[bool]:
            return self._ctx.once(key, change)

        renamed = await self.trees.commit(attempt)
        self._ctx.free(renamed.chunks)
        return renamed.answer

    async def exchange(self, pairs: Sequence[tuple[str, str]], user: str, request_id: str = "") -> None:
        """Exchange several pairs of names in one commit."""
        parsed = [(changeable_path(one), changeable_path(other)) for one, other in pairs]
        caller = self._ctx.caller(user)
        await self._ctx.under_construction.settle_trees(*(path for pair in parsed for path in pair))

        def change(tx: Transaction) -> Applied[None]:
            for one, other in parsed:
                checks.check_rename(tx, one, other, caller, RenameMode.OVERWRITE)
            exchange(tx, parsed, self._ctx.now_ms())
            return Applied(None)

        self._ctx.once(RequestKey(request_id, ("exchange", *map(str, sum(parsed, ())), user)), change)

    async def delete(self, path: str, recursive: bool, user: str, request_id: str = "") -> bool:
        parsed, caller = changeable_path(path), self._ctx.caller(user)
        await self._ctx.under_construction.settle_trees(parsed)
        key = RequestKey(request_id, ("delete", str(parsed), recursive, user))
        rights = RemovalRights(self._ctx, parsed, caller) if recursive else None

        def change(tx: Transaction) -> Applied[bool]:
            checks.check_delete(tx, parsed, caller)
            if rights is not None:
                rights.check(tx)
            result = namespace.delete(tx, parsed, recursive, self._ctx.now_ms())
            return Applied(result.done, result.freed)

        if rights is None:
            try:
                deleted = self._ctx.once(key, change)
            except PathIsNotEmptyDirectory:
                # As in HDFS, rights on everything below are checked before the directory is reported as not empty.
                await RemovalRights(self._ctx, parsed, caller).look()
                raise
        else:
            if cached_reply(self._ctx.reader, key) is None:
                # As in HDFS, a missing right to remove the name itself is reported first.
                checks.check_delete(self._ctx.reader, parsed, caller)
                await rights.look()
            once = partial(run_once, key=key, now_ms=self._ctx.now_ms(), change=change)
            deleted = await self.trees.commit(partial(rights.commit, once))
        self._ctx.free(deleted.chunks)
        self.reclaim_soon()
        return deleted.answer

    async def set_times(
        self, path: str, user: str, modified_ms: int | None, accessed_ms: int | None, request_id: str = ""
    ) -> None:
        def change(tx: Transaction, at: NamespacePath, caller: Principal) -> None:
            checks.check_access(tx, at, caller, Access.WRITE)
            namespace.set_times(tx, at, modified_ms, accessed_ms)

        await self._ctx.change(path, user, ("times", modified_ms, accessed_ms), request_id, change)

    async def set_permission(self, path: str, user: str, permission: int, request_id: str = "") -> None:
        def change(tx: Transaction, at: NamespacePath, caller: Principal) -> None:
            checks.check_owner(tx, at, caller)
            namespace.set_permission(tx, at, permission)

        await self._ctx.change(path, user, ("permission", permission), request_id, change)

    async def set_owner(
        self, path: str, user: str, owner: str | None, group: str | None, request_id: str = ""
    ) -> None:
        def change(tx: Transaction, at: NamespacePath, caller: Principal) -> None:
            checks.check_set_owner(tx, at, caller, owner, group)
            namespace.set_owner(tx, at, owner, group)

        await self._ctx.change(path, user, ("owner", owner, group), request_id, change)

    async def set_replication(self, path: str, user: str, replication: int, request_id: str = "") -> bool:
        parsed, caller = changeable_path(path), self._ctx.caller(user)
        await self._ctx.under_construction.settle(parsed)
        wanted = checked_replication(replication, parsed)

        def change(tx: Transaction) -> Applied[bool]:
            checks.check_access(tx, parsed, caller, Access.WRITE)
            result = namespace.set_replication(tx, parsed, wanted)
            return Applied(result.done, result.changed)

        changed = self._ctx.once(RequestKey(request_id, ("replication", str(parsed), user, wanted)), change)
        self._ctx.commit.after(lambda: self._ctx.cluster.load(changed.chunks))
        return changed.answer

    def reclaim_soon(self) -> None:
        """Have the background task call `reclaim` soon."""
        self._to_reclaim = True

    def give_up(self, change: Callable[[Transaction], None]) -> None:
        """Commit the end of a change that was begun and cannot be completed, however long commits are refused."""
        self._given_up.append(change)
        self.reclaim_soon()

    async def reclaim(self) -> None:
        """Remove deleted trees and unfinished copies in small commits, until nothing is left."""
        while self._given_up:
            await self._ctx.commit(self._given_up[0], in_any_case=True)
            del self._given_up[0]
        while self._to_reclaim:
            self._to_reclaim = False
            more = True
            try:
                freed, more = await self._ctx.commit(
                    lambda tx: reclaim_step(tx, reclaim_entries_per_commit), in_any_case=True
                )
            finally:
                self._to_reclaim = self._to_reclaim or more
            self._ctx.free(freed)

    async def forget_answers(self) -> None:
        """Delete cached answers that no client can ask for again."""
        while await self._ctx.commit(lambda tx: forget_answers_step(tx, self._ctx.now_ms()), in_any_case=True):
            pass
