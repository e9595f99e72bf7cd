"""Operations on snapshots for WebHDFS, REST and frames."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from peacefs.coordinator.limits import reclaim_entries_per_commit
from peacefs.coordinator.metadata.model import ChunkRecord
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.coordinator.namespace import access_checks as checks
from peacefs.coordinator.namespace import snapshot_diff, snapshot_restore, snapshots
from peacefs.coordinator.namespace.paths import SNAPSHOTS_NAME, NamespacePath
from peacefs.coordinator.namespace.permissions import Access, Principal
from peacefs.coordinator.namespace.retry_cache import Applied, RequestKey, cached_reply, run_once
from peacefs.coordinator.namespace.snapshot_diff import Difference

from .context import OperationContext
from .names import Names
from .recursive_delete import RemovalRights


class SnapshotOperations:
    """Superusers allow and disallow; owners take, rename, delete and restore; readers compare.

    Paths are texts. A missing right raises AccessDenied. A change that is repeated under its `request_id` gets the
    first answer.
    """

    def __init__(self, context: OperationContext, names: Names) -> None:
        self._ctx = context
        self._names = names

    async def allow(self, path: str, user: str, request_id: str = "") -> None:
        self._ctx.callers.need_superuser(user)
        await self._ctx.change(
            path, user, ("allow snapshots",), request_id, lambda tx, at, _: snapshots.allow(tx, at)
        )

    async def disallow(self, path: str, user: str, request_id: str = "") -> None:
        self._ctx.callers.need_superuser(user)
        await self._ctx.change(
            path, user, ("disallow snapshots",), request_id, lambda tx, at, _: snapshots.disallow(tx, at)
        )

    async def create(self, path: str, user: str, name: str | None, request_id: str = "") -> str:
        """Take a snapshot and return its path. If `name` is empty, the time becomes its name."""
        await self._ctx.under_construction.settle_trees(snapshots.changeable_path(path))
        now_ms = self._ctx.now_ms()
        named = name or snapshots.default_name(now_ms)

        def change(tx: Transaction, at: NamespacePath, caller: Principal) -> str:
            checks.check_owner(tx, at, caller)
            snapshots.create(tx, at, named, now_ms)
            return str(at.child(SNAPSHOTS_NAME).child(named))

        return await self._ctx.change(path, user, ("create snapshot", name), request_id, change)

    async def rename(self, path: str, user: str, name: str, new_name: str, request_id: str = "") -> None:
        def change(tx: Transaction, at: NamespacePath, caller: Principal) -> None:
            checks.check_owner(tx, at, caller)
            snapshots.rename(tx, at, name, new_name)

        await self._ctx.change(path, user, ("rename snapshot", name, new_name), request_id, change)

    async def delete(self, path: str, user: str, name: str, request_id: str = "") -> None:
        def change(tx: Transaction, at: NamespacePath, caller: Principal) -> None:
            checks.check_owner(tx, at, caller)
            snapshots.delete(tx, at, name)

        await self._ctx.change(path, user, ("delete snapshot", name), request_id, change)
        self._names.reclaim_soon()

    async def directories(self, user: str) -> list[snapshots.SnapshottableDirectory]:
        """Return the directories that allow snapshots. Ordinary users see only their own, as in HDFS."""
        caller = self._ctx.caller(user)
        found = snapshots.snapshottable_directories(self._ctx.reader)
        return [one for one in found if caller.is_superuser or one.status.owner == user]

    async def listing(self, path: str, user: str) -> list[snapshots.ListedSnapshot]:
        """Return the snapshots of a directory. Raises SnapshotRefused, FileNotFound."""
        parsed = snapshots.changeable_path(path)
        checks.check_access(self._ctx.reader, parsed, self._ctx.caller(user), Access.READ | Access.EXECUTE)
        return snapshots.list_snapshots(self._ctx.reader, parsed)

    async def diff(self, path: str, user: str, older: str, newer: str) -> list[Difference]:
        """Compare two snapshots. An empty name means the directory as it is now."""
        parsed = snapshots.changeable_path(path)
        reader = self._ctx.reader
        checks.check_access(reader, parsed, self._ctx.caller(user), Access.READ | Access.EXECUTE)
        directory = snapshots.snapshottable(reader, parsed)
        before, after = (
            reader.at(snapshots.existing_snapshot(reader, parsed, name)[1].at_tx, directory) if name else reader
            for name in (older, newer)
        )
        return await self._ctx.in_turns(snapshot_diff.compare(before, after, directory))

    async def restore(self, path: str, user: str, name: str, request_id: str = "") -> None:
        """Replace a directory's contents by those of a snapshot, all at once. Its own attributes stay.

        Needs the rights to delete the contents.
        """
        parsed, caller = snapshots.changeable_path(path), self._ctx.caller(user)
        key = RequestKey(request_id, ("restore snapshot", path, user, name))
        if cached_reply(self._ctx.reader, key) is not None:
            return
        await self._ctx.under_construction.settle_trees(parsed)
        rights = RemovalRights(self._ctx, parsed, caller)
        await rights.look()

        def begin(tx: Transaction) -> snapshot_restore.Restoration:
            checks.check_owner(tx, parsed, caller)
            return snapshot_restore.begin(tx, parsed, name)

        job = await self._ctx.commit(begin)
        try:
            while not job.growth.is_whole:
                job = await self._copy_more(job)
            finish = partial(self._finish, key=key, caller=caller, rights=rights, job=job)
            self._ctx.cluster.load(await self._names.trees.commit(partial(rights.commit, finish)))
        except BaseException:
            self._names.give_up(lambda tx: snapshot_restore.give_up(tx, job))
            raise
        finally:
            self._names.reclaim_soon()

    def _finish(
        self,
        tx: Transaction,
        key: RequestKey,
        caller: Principal,
        rights: RemovalRights,
        job: snapshot_restore.Restoration,
    ) -> Sequence[ChunkRecord]:
        """Complete a restore. Return the chunks that need more replicas than before."""
        now_ms = self._ctx.now_ms()

        def change(tx: Transaction) -> Applied[None]:
            checks.check_owner(tx, job.path, caller)
            rights.check(tx)
            return Applied(None, snapshot_restore.finish(tx, job, now_ms))

        done = run_once(tx, key, now_ms, change)
        if done.before:
            # The request was repeated while its first copy was running, and that copy has ended meanwhile.
            snapshot_restore.give_up(tx, job)
        return done.chunks

    async def _copy_more(self, job: snapshot_restore.Restoration) -> snapshot_restore.Restoration:
        return await self._ctx.commit(lambda tx: snapshot_restore.copy_step(tx, job, reclaim_entries_per_commit))
