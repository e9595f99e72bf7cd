"""The trash of all users: deleted files become checkpoints, and checkpoints expire.

As in HDFS, a deleted file stays for at least the configured time and at most twice as long, because one checkpoint
collects the deletions of one period. Unlike HDFS, a coordinator that was down at the end of a period makes the
checkpoint when it starts. Otherwise a coordinator that runs only in the daytime would never make one.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Awaitable, Generator
from enum import Enum
from math import inf
from typing import Final, NamedTuple

from peacefs.coordinator.limits import list_page_entries
from peacefs.coordinator.metadata.model import InodeKind, InodeStatus, RenameMode
from peacefs.coordinator.metadata.reader import Reader
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import NamespacePath, parse_path
from peacefs.coordinator.namespace.resolution import follow
from peacefs.protocol.errors import AccessDenied, FileNotFound, PeacefsError
from peacefs.protocol.values.trash import (
    CURRENT_NAME,
    HOMES,
    TRASH_NAME,
    checkpoint_name,
    has_expired,
    trash_of,
)

from .context import OperationContext
from .names import Names

trash_users_per_turn: Final = 50

_HOMES = parse_path(HOMES)
log = logging.getLogger("peacefs.coordinator")


class Step(Enum):
    """What to do with a directory of a trash."""

    CLOSE = "make a checkpoint of it"
    DELETE = "delete it"


class Due(NamedTuple):
    """One directory of a trash that is due for a step."""

    step: Step
    path: NamespacePath


def find_due(
    reader: Reader, now_ms: int, kept_minutes: int, *, close_before_ms: float
) -> Generator[None, None, list[Due]]:
    """Find expired checkpoints, and `Current` directories unchanged since `close_before_ms`.

    Runs in turns of a few users.
    """
    due: list[Due] = []
    after = ""
    while True:
        way = follow(reader, _HOMES)
        users = reader.children(way.last, after, trash_users_per_turn) if way.is_whole else []
        for name, home in users:
            if home.kind is InodeKind.DIRECTORY:
                trash = _HOMES.child(name).child(TRASH_NAME)
                due += _due_of(reader, trash, now_ms, kept_minutes, close_before_ms)
        if len(users) < trash_users_per_turn:
            return due
        after = users[-1][0]
        yield


def _due_of(
    reader: Reader, trash: NamespacePath, now_ms: int, kept_minutes: int, close_before_ms: float
) -> list[Due]:
    way = follow(reader, trash)
    # One page holds years of checkpoints. A later run finds the rest.
    entries = reader.children(way.last, "", list_page_entries) if way.is_whole else []
    directories = {name: inode for name, inode in entries if inode.kind is InodeKind.DIRECTORY}
    current = directories.get(CURRENT_NAME)
    holds = current is not None and current.modified_ms < close_before_ms and reader.has_children(current.inode)
    due = [Due(Step.DELETE, trash.child(name)) for name in directories if has_expired(name, now_ms, kept_minutes)]
    return [*due, Due(Step.CLOSE, trash.child(CURRENT_NAME))] if holds else due


class Trash:
    """Empties the trash of all users. If the time is 0 minutes, there is no trash."""

    def __init__(self, context: OperationContext, names: Names, kept_minutes: int) -> None:
        self._ctx = context
        self._names = names
        self.kept_minutes = kept_minutes
        #: The period of the last run; None before the first.
        self._period: int | None = None

    async def empty(self) -> None:
        """Delete what has expired. If a period has ended since the last run, make checkpoints.

        The first run makes checkpoints of what has not changed since the period began, because it missed the end
        of the earlier one.
        """
        if self.kept_minutes == 0:
            return
        period = self._current_period()
        if self._period is None:
            close_before_ms: float = period * self._period_ms()
        else:
            close_before_ms = inf if period != self._period else -inf
        self._period = period
        turns = find_due(self._ctx.reader, self._ctx.now_ms(), self.kept_minutes, close_before_ms=close_before_ms)
        for due in await self._ctx.in_turns(turns):
            try:
                await (self._delete(due.path) if due.step is Step.DELETE else self._close(due.path))
            except PeacefsError as refusal:
                log.warning(
                    "%s in the trash could not be deleted and will be tried again: %s", due.path, refusal.message
                )

    async def roots(self, user: str, *, all_users: bool) -> list[tuple[str, InodeStatus]]:
        """Return the existing trashes of a user, or of all users whose homes the user may read."""
        users = [user]
        if all_users:
            users, after = [], None
            more = True
            while more:
                try:
                    page = await self._names.list_page(HOMES, user, after, list_page_entries)
                except FileNotFound:
                    break
                users += [home.name for home in page.entries if home.kind is InodeKind.DIRECTORY]
                more, after = page.remaining > 0, page.entries[-1].name if page.entries else None
        found = []
        for name in users:
            with contextlib.suppress(FileNotFound, AccessDenied):
                found.append((trash_of(name), await self._names.status(trash_of(name), user)))
        return found

    def _current_period(self) -> int:
        return self._ctx.now_ms() // self._period_ms()

    def _period_ms(self) -> int:
        return max(1, self.kept_minutes) * 60_000

    async def _delete(self, path: NamespacePath) -> None:
        def delete() -> Awaitable[namespace.DeleteResult]:
            return self._ctx.commit(
                lambda tx: namespace.delete(tx, path, True, self._ctx.now_ms()), in_any_case=True
            )

        result = await self._names.trees.commit(delete)
        self._ctx.free(result.freed)
        self._names.reclaim_soon()
        log.info("deleted %s from the trash", path)

    async def _close(self, current: NamespacePath) -> None:
        now_ms = self._ctx.now_ms()
        directory = current.ancestor(len(current.components) - 1)
        name = checkpoint_name(now_ms)
        names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(1)))
        checkpoint = next(
            path for name in names if not follow(self._ctx.reader, path := directory.child(name)).is_whole
        )
        await self._ctx.commit(
            lambda tx: namespace.rename(tx, current, checkpoint, RenameMode.STRICT, now_ms), in_any_case=True
        )
