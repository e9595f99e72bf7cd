"""Make an earlier batch the latest: cut back a hidden copy of the checkpoint, then exchange it with the original.

`cut` decides what to remove. The log of a file sink lies outside the root and makes Spark skip batches that it
lists, so it is cut back in the same commit. Other sinks keep what they recorded. A sink that skips known batch
numbers loses rows if a repeated batch has other rows; the user must therefore allow that.

A rollback is a run of its own. So an older run that was thought dead can write to neither directory.
"""

from __future__ import annotations

import logging
import os
import posixpath
import socket
import time
from dataclasses import dataclass

from peacefs.client.control.addresses import parse_address
from peacefs.client.control.query_runs import CheckpointRuns
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.protocol.errors import AccessDenied, BadRequest, FileNotFound, PathError, PeacefsError, RunSuperseded
from peacefs.protocol.values.query_reports import QueryState

from .ancestry import StepKind, record_step
from .catalogue import latest_of, read_layout
from .cut import Cut, plan_cut
from .inspection import Inspection
from .judge import BatchVerifier
from .layout import SINK_LOG, CheckpointLayout, LogFiles, place_in_log
from .left_over import staging_name
from .needs import Needs
from .reports import report_of, seconds_since
from .tree import FileTree, PeaceTree, TreeEntry, Workspace, files_below

_log = logging.getLogger("peacefs.checkpoints")


@dataclass(frozen=True, slots=True)
class Rollback:
    """The latest batch before and after, where the old content is kept, and the number of removed files."""

    root: str
    before: int
    batch: int
    kept: list[str]
    removed: int
    #: The batch that is repeated unchanged, and batches that may get other rows.
    repeats: int | None
    may_differ: list[int]


@dataclass(frozen=True, slots=True)
class RollbackRequest:
    """What to roll back. `sink` is the directory of a file sink, or None.

    A checkpoint is in use if its run is not over and it was written to in the last `idle_s` seconds. If batches
    may get other rows, a rollback is refused unless `may_differ` is set or there is a file sink.
    """

    root: str
    batch: int
    sink: str | None
    idle_s: float
    may_differ: bool = False


def beyond_in_sink(log: LogFiles, batch: int) -> list[TreeEntry]:
    """Return a sink's log entries of later batches. Raises BadRequest if the log would be broken without them."""
    kept = log.up_to(batch)
    if any(entry is None for _, entry in kept.needed()) or not kept.needed():
        raise BadRequest(
            f"the sink's log does not reach back to batch {batch}: it was compacted since, and its parts deleted"
        )
    if kept.latest != batch:
        raise BadRequest(
            f"the sink's log has no entry of batch {batch}, as a repartition of the state leaves none: Spark "
            "would fail when it compacts the log; go back to the batch before"
        )
    return [entry for files in (log.deltas, log.compacts) for number, entry in files.items() if number > batch]


def roll_back(files: PeaceFileSystem, request: RollbackRequest) -> Rollback:
    """Roll back. Raises BadRequest if the batch is gone or not good, or if the checkpoint's query is alive."""
    tree = PeaceTree(files)
    layout = read_layout(tree, request.root)
    latest = max(layout.commits, default=-1)
    with CheckpointRuns(parse_address(files.address), files.user) as runs:
        refuse_live_run(runs, layout, request.idle_s)
        cut = check_batch(tree, layout, request, latest)
        location = runs.begin(request.root, host=socket.gethostname(), pid=os.getpid()).location
        try:
            kept, removed = _cut_back(files, layout, request, cut, location)
            return Rollback(request.root, latest, request.batch, kept, removed, cut.plan, cut.anew)
        except BaseException:
            try:
                runs.end(location)
            except PeacefsError as fault:
                _log.warning(
                    "the run of this rollback could not be ended; the next run ends it: %s", fault.message
                )
            raise


def _cut_back(
    files: PeaceFileSystem, layout: CheckpointLayout, request: RollbackRequest, cut: Cut, location: str
) -> tuple[list[str], int]:
    """Return where the old content is kept, and how many files were removed. `location` names this run."""
    staged: list[tuple[str, str]] = []
    try:
        removed = _prepare(files, PeaceTree(files), layout, request, cut, staged)
        (_, staging), *sinks = staged
        exchange(files, [(location, staging), *sinks])
    except Unjudged as unknown:
        # The exchange may have happened: then the staged tree holds the old content, and must stay.
        raise unknown.error from None
    except BaseException:
        for _, staging in staged:
            try:
                files.delete(staging, recursive=True)
            except PeacefsError as fault:
                _log.warning("%s is left over and can be deleted: %s", staging, fault.message)
        raise
    return [_keep(files, pair, request.batch) for pair in staged], removed


class Unjudged(Exception):
    """The exchange was requested, but its outcome is unknown."""

    def __init__(self, error: PeacefsError) -> None:
        super().__init__(error)
        self.error = error


def exchange(files: PeaceFileSystem, staged: list[tuple[str, str]]) -> None:
    """Exchange pairs of paths in one commit. Raises PeacefsError; Unjudged if the outcome is unknown."""
    try:
        files.exchange(*staged)
    except (PathError, AccessDenied, BadRequest, RunSuperseded):
        raise
    except PeacefsError as error:
        raise Unjudged(error) from error


def _prepare(
    files: PeaceFileSystem,
    tree: PeaceTree,
    layout: CheckpointLayout,
    request: RollbackRequest,
    cut: Cut,
    staged: list[tuple[str, str]],
) -> int:
    """Copy what is to change, and cut the copies back. Return the number of removed files."""
    staging = _stage(files, request.root, request.batch, staged)
    if lengths(read_layout(tree, staging)) != lengths(layout):
        raise BadRequest(alive(request.root))
    for path in cut.remove:
        files.delete(f"{staging}/{path}")
    check_cut(tree, staging, request)
    record_rollback(tree, staging, layout, request)
    removed = len(cut.remove)
    if request.sink is not None:
        removed += _cut_sink(files, tree, posixpath.join(request.sink, SINK_LOG), request.batch, staged)
    if read_layout(tree, request.root).by_path != layout.by_path:
        raise BadRequest(alive(request.root))
    return removed


def lengths(layout: CheckpointLayout) -> dict[str, int]:
    """Return the size of each file, to check that a copy is complete."""
    return {path: entry.length for path, entry in layout.by_path.items()}


def refuse_live_run(runs: CheckpointRuns, layout: CheckpointLayout, idle_s: float) -> None:
    """Raise BadRequest if a run may be alive: the checkpoint was written to in the last `idle_s` seconds.

    A run that ended after the last write is over. A run that has just begun counts as alive.
    """
    latest = next((run for run in runs.latest(layout.root) if run.path == layout.root), None)
    written_ms = max(layout.modified_ms, latest.last_write_ms if latest else 0)
    if latest and latest.ended_ms is not None and written_ms <= latest.ended_ms:
        return
    if latest and latest.ended_ms is None and time.time() - max(written_ms, latest.since_ms) / 1000 < idle_s:
        whose = f"{latest.user}, process {latest.pid} on {latest.host}"
        raise BadRequest(
            f"run {latest.run} ({whose}) is not over: {alive(layout.root)} or begun in the last {idle_s:g} s "
            "(--idle)"
        )
    said = report_of(runs, layout.root)
    if said is not None and said.state is QueryState.RUNNING and seconds_since(said) < idle_s:
        raise BadRequest(
            f"the query is alive: process {said.pid} on {said.host} said so {seconds_since(said):.0f} s ago; "
            f"stop it, or wait until it has said nothing for {idle_s:g} s (--idle)"
        )
    refuse_live(layout, idle_s)


def refuse_live(layout: CheckpointLayout, idle_s: float) -> None:
    """Raise BadRequest if a checkpoint was written to in the last `idle_s` seconds."""
    if time.time() - layout.modified_ms / 1000 < idle_s:
        raise BadRequest(f"{alive(layout.root)} in the last {idle_s:g} s (--idle)")


def alive(root: str) -> str:
    """Return the message for a checkpoint that changes during a rollback."""
    return f"a run of the query seems to be alive: {root} was written to"


def check_batch(tree: FileTree, layout: CheckpointLayout, request: RollbackRequest, latest: int) -> Cut:
    """Plan the cut. Raises BadRequest if the batch is gone, not good, the latest, or needs `may_differ`."""
    if request.batch not in layout.commits:
        kept = f"batches {min(layout.commits)} to {latest} are" if layout.commits else "no batch is"
        raise BadRequest(f"batch {request.batch} is not there to go back to: {kept}")
    inspection = Inspection(tree, layout)
    _refuse_bad(BatchVerifier(inspection).batch(request.batch), request)
    cut = plan_cut(inspection, request.batch)
    if not cut.remove:
        raise BadRequest(f"batch {request.batch} is the latest already")
    if request.sink is None and cut.reasons and not request.may_differ:
        raise BadRequest(_may_differ(request.batch, cut, max(layout.offsets)))
    return cut


def _may_differ(batch: int, cut: Cut, planned: int) -> str:
    first = min(cut.anew, default=batch + 1)
    named = f"batches {first} to {planned}" if planned > first else f"batch {first}"
    return (
        f"{named} may come again with other rows than before: {'; '.join(cut.reasons)}; a sink that goes by batch "
        "numbers (foreachBatch code that skips those it has seen, Delta Lake's txnVersion) would lose rows: undo "
        "there what they gave it, then say --batches-may-differ"
    )


def record_rollback(tree: Workspace, staging: str, layout: CheckpointLayout, request: RollbackRequest) -> None:
    """Record in a cut-back copy which checkpoint it was made from."""
    record_step(
        tree,
        staging,
        StepKind.ROLLBACK,
        request.root,
        source_id=tree.identity(request.root),
        query=latest_of(tree, staging)[0],
        batch=request.batch,
        before=max(layout.commits, default=None),
    )


def check_cut(tree: FileTree, staging: str, request: RollbackRequest) -> None:
    """Check that a query starts from the result. Raises BadRequest."""
    cut = read_layout(tree, staging)
    cut.named = request.root
    _refuse_bad(BatchVerifier(Inspection(tree, cut)).restart(), request)


def _refuse_bad(needs: Needs, request: RollbackRequest) -> None:
    found = next((finding for finding in needs.findings if finding.stops), None)
    if found is not None:
        raise BadRequest(
            f"a query could not go on from batch {request.batch}: {found.path}: {found.fault}: {found.reason}"
        )


def _stage(files: PeaceFileSystem, path: str, batch: int, staged: list[tuple[str, str]]) -> str:
    # Not a name that `left_over` deletes after a day: after the exchange this directory holds the old content.
    staging = staging_name(f"{path}.rollback-to-{batch}")
    files.copy(path, staging, preserve=True)
    staged.append((path, staging))
    return staging


def _cut_sink(
    files: PeaceFileSystem, tree: PeaceTree, sink_log: str, batch: int, staged: list[tuple[str, str]]
) -> int:
    log = LogFiles()
    try:
        staging = _stage(files, sink_log, batch, staged)
    except FileNotFound:
        raise BadRequest(f"{sink_log} is not there: is {posixpath.dirname(sink_log)} a file sink's?") from None
    for entry in files_below(tree, staging):
        place_in_log(log, entry)
    doomed = beyond_in_sink(log, batch)
    for entry in doomed:
        files.delete(entry.path)
    return len(doomed)


def _keep(files: PeaceFileSystem, pair: tuple[str, str], batch: int) -> str:
    """Rename the old content so that its name says what it is."""
    path, staging = pair
    kept = f"{path}.before-rollback-to-{batch}.{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
    files.rename(staging, kept)
    return kept
