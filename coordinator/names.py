"""Operations on names: looking them up, making, moving and deleting them, and what deletion leaves to do."""

from __future__ import annotations

from peacefs.protocol.limits import reclaim_entries_per_commit

from . import namespace
from .paths import parse_path
from .reclaim import forget_answers_step, reclaim_step
from .records import ContentSummary, FileStatus, ListPage, RenameMode
from .replication_bounds import checked_replication
from .workplace import Workplace


class Names:
    """Reads look things up at once; changes wait for their commit. Paths are texts; `user` owns what is made."""

    def __init__(self, workplace: Workplace) -> None:
        self._at = workplace
        self._to_reclaim = True

    async def status(self, path: str, user: str) -> FileStatus:
        return namespace.status(self._at.reader, parse_path(path))

    async def list_page(self, path: str, user: str, start_after: str | None, limit: int) -> ListPage:
        return namespace.list_page(self._at.reader, parse_path(path), start_after, limit)

    async def content_summary(self, path: str, user: str) -> ContentSummary:
        return await self._at.in_turns(namespace.count_tree(self._at.reader, parse_path(path)))

    async def mkdirs(self, path: str, user: str, permission: int) -> bool:
        parsed = parse_path(path)
        return await self._at.commit(lambda tx: namespace.mkdirs(tx, parsed, user, permission, self._at.now_ms()))

    async def rename(self, source: str, target: str, user: str, mode: RenameMode) -> bool:
        source_path, target_path = parse_path(source), parse_path(target)
        result = await self._at.commit(
            lambda tx: namespace.rename(tx, source_path, target_path, mode, self._at.now_ms())
        )
        self._at.free(result.freed)
        return result.done

    async def delete(self, path: str, recursive: bool, user: str) -> bool:
        parsed = parse_path(path)
        result = await self._at.commit(lambda tx: namespace.delete(tx, parsed, recursive, self._at.now_ms()))
        self._at.free(result.freed)
        self._to_reclaim = True
        return result.done

    async def set_times(self, path: str, user: str, modified_ms: int | None, accessed_ms: int | None) -> None:
        parsed = parse_path(path)
        await self._at.commit(lambda tx: namespace.set_times(tx, parsed, modified_ms, accessed_ms))

    async def set_permission(self, path: str, user: str, permission: int) -> None:
        parsed = parse_path(path)
        await self._at.commit(lambda tx: namespace.set_permission(tx, parsed, permission))

    async def set_owner(self, path: str, user: str, owner: str | None, group: str | None) -> None:
        parsed = parse_path(path)
        await self._at.commit(lambda tx: namespace.set_owner(tx, parsed, owner, group))

    async def set_replication(self, path: str, user: str, replication: int) -> bool:
        parsed = parse_path(path)
        wanted = checked_replication(replication)
        result = await self._at.commit(lambda tx: namespace.set_replication(tx, parsed, wanted))
        self._at.cluster.load(result.changed)
        return result.done

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
