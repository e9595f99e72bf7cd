"""Walks a tree page by page and judges each file, for `fsck`.

A page has a maximum number of entries, and yields the event loop every few milliseconds. No state is kept between
pages: the path of the last visited entry says where to continue. Files that appear or disappear during an
inspection may be judged or not.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from peacefs.coordinator.cluster.health import FileJudgement, HealthCheck, judge_cluster
from peacefs.coordinator.metadata.model import Inode, InodeId, InodeKind
from peacefs.coordinator.metadata.reader import Reader
from peacefs.coordinator.namespace import access_checks
from peacefs.coordinator.namespace.paths import NamespacePath, parse_path
from peacefs.coordinator.namespace.permissions import Principal, check_may_read
from peacefs.coordinator.namespace.resolution import existing_inode, find_existing
from peacefs.protocol.errors import BadRequest
from peacefs.protocol.values.fsck_findings import FileFindings, FsckPage, Tally

from .context import OperationContext

fsck_entries_per_page: Final = 1000
fsck_entries_per_read: Final = 100
fsck_chunks_per_turn: Final = 500
# Seconds for which an inspection holds the event loop at a time.
fsck_turn_s: Final = 0.002


class _Directory:
    """A directory of the walk, and its entries that are still to be visited."""

    def __init__(self, inode: InodeId, path: NamespacePath) -> None:
        self.inode = inode
        self.path = path
        self.after = ""
        self._read: deque[tuple[str, Inode]] = deque()

    def next(self, reader: Reader) -> tuple[NamespacePath, Inode] | None:
        if not self._read:
            self._read.extend(reader.children(self.inode, self.after, fsck_entries_per_read))
        if not self._read:
            return None
        self.after, inode = self._read.popleft()
        return self.path.child(self.after), inode


class _FsckPage:
    """A page under construction."""

    def __init__(self, context: OperationContext, *, every_file: bool) -> None:
        self._ctx = context
        self._every_file = every_file
        self._judge = HealthCheck(context.cluster)
        self._turn_ends_s = context.monotonic() + fsck_turn_s
        self.files: list[FileFindings] = []
        self.tally = Tally()

    async def pause(self) -> None:
        """Yield the event loop if it is time to."""
        if self._ctx.monotonic() >= self._turn_ends_s:
            await self._ctx.sleep(0)
            self._judge = HealthCheck(self._ctx.cluster)
            self._turn_ends_s = self._ctx.monotonic() + fsck_turn_s

    async def visit_file(self, path: NamespacePath, inode: Inode) -> None:
        judgement = self._judge.file(str(path), inode.length, inode.replication)
        if self._ctx.reader.lease(inode.inode) is not None:
            judgement.mark_open()
        position, found_bytes = -1, 0
        while part := self._ctx.reader.references_after(inode.inode, position, fsck_chunks_per_turn):
            position = part[-1][0]
            found_bytes += sum(reference.length for _position, reference in part)
            self._judge.add(judgement, [reference.chunk for _position, reference in part])
            await self.pause()
        if found_bytes == inode.length:
            self._take_in(judgement)
        # Otherwise it was deleted or changed during the inspection.

    def _take_in(self, judgement: FileJudgement) -> None:
        self.tally.add(judgement.tally)
        findings = judgement.findings
        if self._every_file or not findings.is_healthy:
            self.files.append(findings)


class Fsck:
    """Judges the files of the namespace."""

    def __init__(self, context: OperationContext) -> None:
        self._ctx = context

    async def page(self, path: str, user: str, after: str | None = None, *, every_file: bool = False) -> FsckPage:
        """Judge the entries of `path` that come after the entry `after` in the walk.

        Return those with findings, or all files if `every_file`. Raises FileNotFound, BadRequest, SafeMode;
        AccessDenied, as HDFS does, on reaching an entry that `user` may not list or read.
        """
        top, caller = parse_path(path), self._ctx.caller(user)
        await self._ctx.until_ready()
        page = _FsckPage(self._ctx, every_file=every_file)
        directories = self._resume(top, parse_path(after), caller) if after is not None else []
        if after is None:
            access_checks.check_pass(self._ctx.reader, top, caller)
            inode = find_existing(self._ctx.reader, top)
            check_may_read(caller, top, inode)
            if inode.kind is InodeKind.FILE:
                await page.visit_file(top, inode)
            else:
                page.tally.directories += 1
                directories.append(_Directory(inode.inode, top))
        last = await self._walk(directories, page, caller)
        if directories:
            return FsckPage(page.files, page.tally, str(last))
        return FsckPage(page.files, page.tally, cluster=judge_cluster(self._ctx.cluster))

    async def _walk(
        self, directories: list[_Directory], page: _FsckPage, caller: Principal
    ) -> NamespacePath | None:
        """Visit the next entries, parents before children. Yield the last visited entry."""
        last, visited = None, 0
        while directories and visited < fsck_entries_per_page:
            entry = directories[-1].next(self._ctx.reader)
            if entry is None:
                directories.pop()
                continue
            last, inode = entry
            visited += 1
            check_may_read(caller, last, inode)
            if inode.kind is InodeKind.DIRECTORY:
                page.tally.directories += 1
                directories.append(_Directory(inode.inode, last))
            else:
                await page.visit_file(last, inode)
            await page.pause()
        return last

    def _resume(self, top: NamespacePath, after: NamespacePath, caller: Principal) -> list[_Directory]:
        """Return the directories above `after`, as far as they still exist."""
        if not after.is_under(top):
            raise BadRequest(f"an inspection of {top} cannot go on after {after}")
        reader = self._ctx.reader
        access_checks.check_list(reader, top, caller)
        directories = [_Directory(find_existing(reader, top).inode, top)]
        for name in after.components[len(top.components) :]:
            directories[-1].after = name
            child = reader.child(directories[-1].inode, name)
            if child is None or (inode := existing_inode(reader, child)).kind is InodeKind.FILE:
                break
            check_may_read(caller, directories[-1].path.child(name), inode)
            directories.append(_Directory(child, directories[-1].path.child(name)))
        return directories
