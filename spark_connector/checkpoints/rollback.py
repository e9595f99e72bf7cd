"""Makes an earlier batch the latest: a copy of the checkpoint is cut back out of sight and takes its place.

What goes is what a later batch wrote: offsets, commits, versions of state, operator metadata. Logs of file sources
stay: Spark takes what they list beyond the batch's offset as the next batch. The log of a file sink lies outside
the root and makes Spark skip batches that it has, so it is cut back in the same commit.

It is a run of its own: an older one that was thought dead can neither write to what is copied nor, afterwards, to
what has taken its place.
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

from .catalogue import read_layout
from .inspection import Inspection
from .layout import SINK_LOG, CheckpointLayout, LogFiles, place_in_log
from .left_over import staging_name
from .reports import report_of, seconds_since
from .tree import Entry, PeaceTree, files_below
from .verification import verify

_log = logging.getLogger("peacefs.checkpoints")


@dataclass(frozen=True, slots=True)
class Rollback:
    """The outcome: the latest batch before and after, the place of what was there before, the files gone."""

    root: str
    before: int
    batch: int
    kept: list[str]
    removed: int


@dataclass(frozen=True, slots=True)
class RollbackRequest:
    """`sink`: the directory of a file sink, None where there is none.

    A checkpoint whose run is not over and that was written to in the last `idle_s` seconds is in use.
    """

    root: str
    batch: int
    sink: str | None
    idle_s: float


def beyond(layout: CheckpointLayout, batch: int) -> list[str]:
    """The files that later batches wrote, with their checksum files: paths relative to the root."""
    entries = [
        entry for log in (layout.offsets, layout.commits) for number, entry in log.items() if number > batch
    ]
    for files in layout.stores.values():
        for versions in (files.changes, files.snapshots):
            entries += [entry for version, entry in versions.items() if version.number > batch + 1]
    for operator in layout.operators.values():
        entries += [entry for made, entry in operator.metadata.items() if made > batch]
    paths = [layout.relative(entry) for entry in entries]
    return paths + [layout.relative(checksum) for path in paths for checksum in layout.checksum_files(path)]


def beyond_in_sink(log: LogFiles, batch: int) -> list[Entry]:
    """The entries of a sink's log that later batches wrote. Raises BadRequest if the rest cannot stand alone."""
    kept = LogFiles(
        {number: entry for number, entry in log.deltas.items() if number <= batch},
        {number: entry for number, entry in log.compacts.items() if number <= batch},
    )
    if any(entry is None for _, entry in kept.needed()) or not kept.needed():
        raise BadRequest(
            f"the sink's log does not reach back to batch {batch}: it was compacted since, and its parts deleted"
        )
    return [entry for files in (log.deltas, log.compacts) for number, entry in files.items() if number > batch]


def roll_back(files: PeaceFileSystem, request: RollbackRequest) -> Rollback:
    """Raises BadRequest for a batch that is gone or not good, and for a checkpoint whose query is alive."""
    tree = PeaceTree(files)
    layout = read_layout(tree, request.root)
    latest = max(layout.commits, default=-1)
    with CheckpointRuns(parse_address(files.address), files.user) as runs:
        refuse_live_run(runs, layout, request.idle_s)
        _check_batch(tree, layout, request, latest)
        location = runs.begin(request.root, host=socket.gethostname(), pid=os.getpid()).location
        try:
            return _cut_back(files, layout, request, latest, location)
        except BaseException:
            try:
                runs.end(location)
            except PeacefsError as fault:
                _log.warning(
                    "the run for this rollback has not been ended, the next one ends it: %s", fault.message
                )
            raise


def _cut_back(
    files: PeaceFileSystem, layout: CheckpointLayout, request: RollbackRequest, latest: int, location: str
) -> Rollback:
    """`location` is the root for the run that this is."""
    staged: list[tuple[str, str]] = []
    try:
        removed = _prepare(files, PeaceTree(files), layout, request, staged)
        (_, staging), *sinks = staged
        _exchange(files, [(location, staging), *sinks])
    except _Unknown as unknown:
        # The staged tree may be what was there before: it stays.
        raise unknown.error from None
    except BaseException:
        for _, staging in staged:
            try:
                files.delete(staging, recursive=True)
            except PeacefsError as fault:
                _log.warning("%s is left over and can be deleted: %s", staging, fault.message)
        raise
    return Rollback(
        request.root, latest, request.batch, [_keep(files, pair, request.batch) for pair in staged], removed
    )


class _Unknown(Exception):
    """The exchange was asked for, and whether it was done is not known."""

    def __init__(self, error: PeacefsError) -> None:
        super().__init__(error)
        self.error = error


def _exchange(files: PeaceFileSystem, staged: list[tuple[str, str]]) -> None:
    try:
        files.exchange(*staged)
    except (PathError, AccessDenied, BadRequest, RunSuperseded):
        raise
    except PeacefsError as error:
        raise _Unknown(error) from error


def _prepare(
    files: PeaceFileSystem,
    tree: PeaceTree,
    layout: CheckpointLayout,
    request: RollbackRequest,
    staged: list[tuple[str, str]],
) -> int:
    """Copies what is to change, and cuts the copies back; how many files that took away."""
    doomed = beyond(layout, request.batch)
    staging = _stage(files, request.root, request.batch, staged)
    if _lengths(read_layout(tree, staging)) != _lengths(layout):
        raise BadRequest(_alive(request.root))
    for path in doomed:
        files.delete(f"{staging}/{path}")
    _check_cut(tree, staging, request)
    removed = len(doomed)
    if request.sink is not None:
        removed += _cut_sink(files, tree, posixpath.join(request.sink, SINK_LOG), request.batch, staged)
    if read_layout(tree, request.root).by_path != layout.by_path:
        raise BadRequest(_alive(request.root))
    return removed


def _lengths(layout: CheckpointLayout) -> dict[str, int]:
    return {path: entry.length for path, entry in layout.by_path.items()}


def refuse_live_run(runs: CheckpointRuns, layout: CheckpointLayout, idle_s: float) -> None:
    """Raises BadRequest if a checkpoint was written to in the last `idle_s` seconds, unless by a run that is over.

    A run that has just begun is alive, too.
    """
    latest = next((run for run in runs.latest(layout.root) if run.path == layout.root), None)
    written_ms = max(layout.modified_ms, latest.last_write_ms if latest else 0)
    if latest and latest.ended_ms is not None and written_ms <= latest.ended_ms:
        return
    if latest and latest.ended_ms is None and time.time() - max(written_ms, latest.since_ms) / 1000 < idle_s:
        whose = f"{latest.user}, process {latest.pid} on {latest.host}"
        raise BadRequest(
            f"run {latest.run} ({whose}) is not over: {_alive(layout.root)} or begun in the last {idle_s:g} s "
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
    """Raises BadRequest if a checkpoint was written to in the last `idle_s` seconds."""
    if time.time() - layout.modified_ms / 1000 < idle_s:
        raise BadRequest(f"{_alive(layout.root)} in the last {idle_s:g} s (--idle)")


def _alive(root: str) -> str:
    return f"a run of the query seems to be alive: {root} was written to"


def _check_batch(tree: PeaceTree, layout: CheckpointLayout, request: RollbackRequest, latest: int) -> None:
    if request.batch not in layout.commits:
        kept = f"batches {min(layout.commits)} to {latest} are" if layout.commits else "no batch is"
        raise BadRequest(f"batch {request.batch} is not there to go back to: {kept}")
    if request.batch == latest == max(layout.offsets, default=latest):
        raise BadRequest(f"batch {request.batch} is the latest already")
    _refuse_bad(tree, layout, request)


def _check_cut(tree: PeaceTree, staging: str, request: RollbackRequest) -> None:
    """Check that the result is what a restart goes on from."""
    cut = read_layout(tree, staging)
    cut.named = request.root
    _refuse_bad(tree, cut, request)


def _refuse_bad(tree: PeaceTree, layout: CheckpointLayout, request: RollbackRequest) -> None:
    verdict = verify(Inspection(tree, layout), request.batch)
    if verdict.last_good != request.batch:
        found = next((finding for finding in verdict.findings if finding.stops), None)
        why = f": {found.path}: {found.fault}: {found.reason}" if found else ""
        raise BadRequest(f"a query could not go on from batch {request.batch}{why}")


def _stage(files: PeaceFileSystem, path: str, batch: int, staged: list[tuple[str, str]]) -> str:
    # Not as others name theirs, which are deleted in time: after the exchange it is what was there before.
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
    """Gives what was there before a name that says so."""
    path, staging = pair
    kept = f"{path}.before-rollback-to-{batch}.{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
    files.rename(staging, kept)
    return kept
