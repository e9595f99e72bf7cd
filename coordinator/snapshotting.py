"""Operations on snapshots, as the fronts call them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar

from peacefs.protocol.errors import AccessDenied
from peacefs.protocol.limits import reclaim_entries_per_commit

from . import access_checks as checks
from . import snapshot_diff, snapshot_restore, snapshots
from .metadata import Transaction
from .names import Names
from .paths import SNAPSHOTS_NAME, NamespacePath
from .permissions import Access
from .snapshot_diff import Difference
from .workplace import Workplace

T = TypeVar("T")


class Snapshotting:
    """Superusers allow and disallow; a directory's owner takes, names, drops and restores; readers compare.

    Paths are texts. Whoever may not gets AccessDenied.
    """

    def __init__(self, workplace: Workplace, names: Names) -> None:
        self._at = workplace
        self._names = names

    async def allow(self, path: str, user: str) -> None:
        self._need_superuser(user)
        parsed = snapshots.changeable_path(path)
        await self._at.commit(lambda tx: snapshots.allow(tx, parsed))

    async def disallow(self, path: str, user: str) -> None:
        self._need_superuser(user)
        parsed = snapshots.changeable_path(path)
        await self._at.commit(lambda tx: snapshots.disallow(tx, parsed))

    async def create(self, path: str, user: str, name: str | None) -> str:
        """The path of the snapshot; without a name it gets one from the clock."""
        now_ms = self._at.now_ms()
        named = name or snapshots.default_name(now_ms)
        await self._as_owner(path, user, lambda tx, parsed: snapshots.create(tx, parsed, named, now_ms))
        return str(snapshots.changeable_path(path).child(SNAPSHOTS_NAME).child(named))

    async def rename(self, path: str, user: str, name: str, new_name: str) -> None:
        await self._as_owner(path, user, lambda tx, parsed: snapshots.rename(tx, parsed, name, new_name))

    async def delete(self, path: str, user: str, name: str) -> None:
        await self._as_owner(path, user, lambda tx, parsed: snapshots.delete(tx, parsed, name))
        self._names.reclaim_soon()

    async def diff(self, path: str, user: str, older: str, newer: str) -> list[Difference]:
        """Between two snapshots; no name stands for the directory as it is now."""
        parsed = snapshots.changeable_path(path)
        reader = self._at.reader
        checks.check_access(reader, parsed, self._at.callers.of(user), Access.READ | Access.EXECUTE)
        directory = snapshots.snapshottable(reader, parsed)
        before, after = (
            reader.at(snapshots.existing_snapshot(reader, parsed, name)[1].at_tx, directory) if name else reader
            for name in (older, newer)
        )
        return await self._at.in_turns(snapshot_diff.compare(before, after, directory))

    async def restore(self, path: str, user: str, name: str) -> None:
        """Gives a directory the contents that a snapshot shows, all at once; its own attributes stay.

        Needs what deleting the contents would need.
        """
        parsed = snapshots.changeable_path(path)
        await self._at.in_turns(checks.check_below(self._at.reader, parsed, self._at.callers.of(user)))
        job = await self._as_owner(path, user, lambda tx, parsed: snapshot_restore.begin(tx, parsed, name))
        try:
            while not job.is_whole:
                job = await self._copy_more(job)
            now_ms = self._at.now_ms()
            await self._as_owner(path, user, lambda tx, _: snapshot_restore.finish(tx, job, now_ms))
        except BaseException:
            with contextlib.suppress(Exception):
                await self._at.commit(lambda tx: snapshot_restore.give_up(tx, job))
            raise
        finally:
            self._names.reclaim_soon()

    async def _copy_more(self, job: snapshot_restore.Restoration) -> snapshot_restore.Restoration:
        return await self._at.commit(lambda tx: snapshot_restore.copy_step(tx, job, reclaim_entries_per_commit))

    async def _as_owner(self, path: str, user: str, change: Callable[[Transaction, NamespacePath], T]) -> T:
        parsed, caller = snapshots.changeable_path(path), self._at.callers.of(user)

        def checked(tx: Transaction) -> T:
            checks.check_owner(tx, parsed, caller)
            return change(tx, parsed)

        return await self._at.commit(checked)

    def _need_superuser(self, user: str) -> None:
        if not self._at.callers.of(user).is_superuser:
            raise AccessDenied(f"Access denied for user {user}. Superuser privilege is required")
