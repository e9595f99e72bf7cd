"""Operations on names: looking them up, making, moving and deleting them, and what deletion leaves to do."""

from __future__ import annotations

from peacefs.protocol.errors import FileNotFound
from peacefs.protocol.limits import reclaim_entries_per_commit

from . import access_checks as checks
from . import namespace, snapshots
from .metadata import Transaction
from .paths import NamespacePath, parse_path
from .permissions import Access, Caller
from .reclaim import forget_answers_step, reclaim_step
from .records import ContentSummary, FileStatus, ListPage, RenameMode
from .replication_bounds import checked_replication
from .snapshots import changeable_path
from .workplace import Workplace


class Names:
    """Reads look things up at once; changes wait for their commit. Paths are texts.

    `user` is who asks and owns what is made. Whoever may not gets AccessDenied.
    """

    def __init__(self, workplace: Workplace) -> None:
        self._at = workplace
        self._to_reclaim = True

    async def status(self, path: str, user: str) -> FileStatus:
        parsed, caller = parse_path(path), self._at.callers.of(user)
        with self._at.reader.view():
            place = self._locate(parsed, caller)
            if place is None:
                return snapshots.status_of_list(self._at.reader, parsed)
            checks.check_pass(place.reader, place.path, caller)
            return namespace.status(place.reader, place.path)

    async def list_page(self, path: str, user: str, start_after: str | None, limit: int) -> ListPage:
        parsed, caller = parse_path(path), self._at.callers.of(user)
        with self._at.reader.view():
            place = self._locate(parsed, caller)
            if place is None:
                return snapshots.list_page(self._at.reader, parsed, start_after, limit)
            checks.check_list(place.reader, place.path, caller)
            return namespace.list_page(place.reader, place.path, start_after, limit)

    async def content_summary(self, path: str, user: str) -> ContentSummary:
        parsed, caller = parse_path(path), self._at.callers.of(user)
        with self._at.reader.view():
            place = self._locate(parsed, caller)
        if place is None:
            raise FileNotFound(f"File does not exist: {parsed}")
        await self._at.in_turns(checks.check_summary(place.reader, place.path, caller))
        return await self._at.in_turns(namespace.count_tree(place.reader, place.path))

    async def check_access(self, path: str, user: str, access: Access) -> None:
        """Raises AccessDenied, FileNotFound."""
        parsed, caller = parse_path(path), self._at.callers.of(user)
        with self._at.reader.view():
            place = self._locate(parsed, caller)
            if place is None:
                snapshots.status_of_list(self._at.reader, parsed)
                return
            checks.check_access(place.reader, place.path, caller, access)
            namespace.status(place.reader, place.path)

    def _locate(self, path: NamespacePath, caller: Caller) -> snapshots.Place | None:
        """Where to look a path up; None for the list of a directory's snapshots."""
        checks.check_way_to_snapshots(self._at.reader, path, caller)
        if snapshots.is_list_of_snapshots(path):
            return None
        return snapshots.locate(self._at.reader, path)

    async def mkdirs(self, path: str, user: str, permission: int) -> bool:
        parsed, caller = changeable_path(path), self._at.callers.of(user)

        def change(tx: Transaction) -> bool:
            checks.check_mkdirs(tx, parsed, caller)
            return namespace.mkdirs(tx, parsed, user, permission, self._at.now_ms())

        return await self._at.commit(change)

    async def rename(self, source: str, target: str, user: str, mode: RenameMode) -> bool:
        source_path, target_path = changeable_path(source), changeable_path(target)
        caller = self._at.callers.of(user)

        def change(tx: Transaction) -> namespace.RenameResult:
            checks.check_rename(tx, source_path, target_path, caller, mode)
            return namespace.rename(tx, source_path, target_path, mode, self._at.now_ms())

        result = await self._at.commit(change)
        self._at.free(result.freed)
        return result.done

    async def delete(self, path: str, recursive: bool, user: str) -> bool:
        parsed, caller = changeable_path(path), self._at.callers.of(user)
        if recursive:
            await self._at.in_turns(checks.check_below(self._at.reader, parsed, caller))

        def change(tx: Transaction) -> namespace.DeleteResult:
            checks.check_delete(tx, parsed, caller)
            return namespace.delete(tx, parsed, recursive, self._at.now_ms())

        result = await self._at.commit(change)
        self._at.free(result.freed)
        self.reclaim_soon()
        return result.done

    async def set_times(self, path: str, user: str, modified_ms: int | None, accessed_ms: int | None) -> None:
        parsed, caller = changeable_path(path), self._at.callers.of(user)

        def change(tx: Transaction) -> None:
            checks.check_access(tx, parsed, caller, Access.WRITE)
            namespace.set_times(tx, parsed, modified_ms, accessed_ms)

        await self._at.commit(change)

    async def set_permission(self, path: str, user: str, permission: int) -> None:
        parsed, caller = changeable_path(path), self._at.callers.of(user)

        def change(tx: Transaction) -> None:
            checks.check_owner(tx, parsed, caller)
            namespace.set_permission(tx, parsed, permission)

        await self._at.commit(change)

    async def set_owner(self, path: str, user: str, owner: str | None, group: str | None) -> None:
        parsed, caller = changeable_path(path), self._at.callers.of(user)

        def change(tx: Transaction) -> None:
            checks.check_set_owner(tx, parsed, caller, owner, group)
            namespace.set_owner(tx, parsed, owner, group)

        await self._at.commit(change)

    async def set_replication(self, path: str, user: str, replication: int) -> bool:
        parsed, caller = changeable_path(path), self._at.callers.of(user)
        wanted = checked_replication(replication)

        def change(tx: Transaction) -> namespace.ReplicationResult:
            checks.check_access(tx, parsed, caller, Access.WRITE)
            return namespace.set_replication(tx, parsed, wanted)

        result = await self._at.commit(change)
        self._at.cluster.load(result.changed)
        return result.done

    def reclaim_soon(self) -> None:
        """There is something to take apart."""
        self._to_reclaim = True

    async def reclaim(self) -> None:
        """Takes deleted trees apart in small commits, until none is left."""
        while self._to_reclaim:
            self._to_reclaim = False
            freed, more = await self._at.commit(lambda tx: reclaim_step(tx, reclaim_entries_per_commit))
            self._at.free(freed)
            self._to_reclaim = self._to_reclaim or more

    async def forget_answers(self) -> None:
        """Drops the answers that nobody can ask for again."""
        while await self._at.commit(lambda tx: forget_answers_step(tx, self._at.now_ms())):
            pass
