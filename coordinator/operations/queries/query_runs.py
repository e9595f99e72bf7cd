"""Operations on runs: a new run fences off all earlier runs of its checkpoint root.

The fence is the commit that begins the run. A change by an earlier run either comes before this commit or is
refused.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from typing import Final

from msgspec import structs

from peacefs.coordinator.metadata.model import InodeId, RecordedRun
from peacefs.coordinator.metadata.reader import Reader
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.coordinator.namespace import access_checks as checks
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace import query_runs as runs
from peacefs.coordinator.namespace.paths import NamespacePath, parse_path
from peacefs.coordinator.namespace.permissions import Access, Principal
from peacefs.coordinator.namespace.resolution import check_writer, described, find_existing
from peacefs.coordinator.namespace.retry_cache import Applied, RequestKey, run_once
from peacefs.coordinator.namespace.snapshots import changeable_path
from peacefs.coordinator.operations.context import OperationContext
from peacefs.coordinator.operations.temporary_files import path_of
from peacefs.coordinator.operations.viewer import Viewer
from peacefs.protocol.errors import AccessDenied, BadRequest
from peacefs.protocol.ids import show
from peacefs.protocol.values.query_runs import RunStatus

# Limits: roots per answer, roots examined per turn, bytes of a host's name.
runs_listed_max: Final = 10_000
runs_per_turn: Final = 100
run_host_characters_max: Final = 255

_DIRECTORY_PERMISSION = 0o755
log = logging.getLogger("peacefs.coordinator")


class QueryRuns:
    """Begins and ends runs. Whoever may write to a directory may begin a run there. Paths are texts."""

    def __init__(self, context: OperationContext) -> None:
        self._ctx = context

    async def begin(
        self, path: str, user: str, host: str, pid: int, request_id: str = "", *, in_any_case: bool = False
    ) -> RunStatus:
        """Begin a run: make the directory if needed, and make the caller its only writer. Return where to write.

        A repeated `request_id` returns the same run. Raises AccessDenied, BadRequest, FileAlreadyExists for a
        file, RunSuperseded if another run was begun meanwhile.
        """
        root, caller = changeable_path(path), self._ctx.caller(user)
        if root.is_root or root.writer is not None:
            raise BadRequest(
                f"{path} cannot be a checkpoint root: a run is begun for the directory itself, below /"
            )
        if not host or len(host) > run_host_characters_max:
            raise BadRequest(f"the host of a run must have 1 to {run_host_characters_max} characters")
        run = RecordedRun(self._ctx.numbering.next(), user, host, pid, self._ctx.now_ms(), None)

        def change(tx: Transaction) -> Applied[int]:
            checks.check_mkdirs(tx, root, caller)
            namespace.mkdirs(tx, root, user, _DIRECTORY_PERMISSION, run.since_ms)
            checks.check_access(tx, root, caller, Access.WRITE)
            runs.begin(tx, root, run)
            return Applied(run.number)

        key = RequestKey(request_id, ("begin run", str(root), user, host, pid))
        now_ms = run.since_ms
        begun = await self._ctx.commit(lambda tx: run_once(tx, key, now_ms, change), in_any_case=in_any_case)
        if not begun.before:
            log.info("run %s of %s: %s", show(run.number), root, described(run))
        return _latest(self._ctx.reader, runs.location(root, begun.answer))

    async def end(self, location: str, user: str, request_id: str = "", *, in_any_case: bool = False) -> None:
        """End a run for its holder. Raises RunSuperseded, AccessDenied, BadRequest."""
        parsed, caller = changeable_path(location), self._ctx.caller(user)

        def change(tx: Transaction) -> Applied[None]:
            checks.check_access(tx, parsed, caller, Access.WRITE)
            runs.end(tx, parsed, self._ctx.now_ms())
            return Applied(None)

        key = RequestKey(request_id, ("end run", str(parsed), user))
        now_ms = self._ctx.now_ms()
        await self._ctx.commit(lambda tx: run_once(tx, key, now_ms, change), in_any_case=in_any_case)

    async def latest(self, path: str, viewer: Viewer) -> list[RunStatus]:
        """Return the latest run of each root at or below a path that the viewer may list, in order of paths.

        Host and process of a run are visible to its user, to users who may write the root, and to superusers.
        Raises FileNotFound, AccessDenied, BadRequest for more than `runs_listed_max` roots.
        """
        parsed, caller = parse_path(path), self._ctx.caller(viewer.user)
        checks.check_list(self._ctx.reader, parsed, caller)
        find_existing(self._ctx.reader, parsed)
        found = await self._ctx.in_turns(
            _below(self._ctx.reader, NamespacePath(parsed.components), caller, viewer)
        )
        return sorted(found, key=lambda one: one.path)


def _below(
    reader: Reader, top: NamespacePath, caller: Principal, viewer: Viewer
) -> Generator[None, None, list[RunStatus]]:
    """Find the roots in turns."""
    found: list[RunStatus] = []
    after: InodeId = 0
    while True:
        page = reader.runs(after, runs_per_turn)
        for directory, run in page:
            path = path_of(reader, directory)
            if path is not None and (path == top or path.is_under(top)) and _may_see(reader, path, caller):
                status = runs.status(reader, directory, path, run)
                is_told = viewer.sees(run.user) or checks.may_write(reader, path, caller)
                found.append(status if is_told else structs.replace(status, host="", pid=0))
        if len(found) > runs_listed_max:
            raise BadRequest(f"more than {runs_listed_max} runs are below {top}: ask for a directory further down")
        if len(page) < runs_per_turn:
            return found
        after = page[-1][0]
        yield


def _may_see(reader: Reader, path: NamespacePath, caller: Principal) -> bool:
    try:
        checks.check_list(reader, path, caller)
    except AccessDenied:
        return False
    return True


def _latest(reader: Reader, location: NamespacePath) -> RunStatus:
    """Return a run if it is still the latest of its root."""
    check_writer(reader, location)
    directory = find_existing(reader, location).inode
    run = reader.run(directory)
    assert run is not None, "the latest run of a directory is on record"
    return runs.status(reader, directory, location, run)
