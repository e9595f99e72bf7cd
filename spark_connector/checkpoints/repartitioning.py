"""Change the number of partitions of a stopped query's state, by Spark's own repartition (4.2 and newer).

Spark works on a hidden copy, which is exchanged with the root in one step once `verify` finds it good. So whenever
the command is killed, the root holds either the state before or the whole new one. A repartition that Spark has
begun in place and not finished is finished by the same command, if it asks for the same number.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from peacefs.client.control.addresses import parse_address
from peacefs.client.control.query_runs import CheckpointRuns
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.protocol.errors import BadRequest, CheckpointDamaged, PeacefsError
from peacefs.runtime.disk_files import sync_directory

from .ancestry import StepKind, record_step
from .catalogue import latest_of, read_layout, state_format
from .inspection import Inspection
from .judge import BatchVerifier
from .layout import CheckpointLayout
from .left_over import staging_name
from .local_rollback import discard, exchange_locally, settle
from .repartitions import repartition_of
from .rollback import Unjudged, alive, exchange, refuse_live, refuse_live_run
from .start_modes import is_stateful
from .tree import LocalTree, PeaceTree, Workspace

_log = logging.getLogger("peacefs.checkpoints")
_STORE = "spark.sql.streaming.stateStore."
_PROVIDERS = "org.apache.spark.sql.execution.streaming.state."


@dataclass(frozen=True, slots=True)
class Repartitioned:
    """The outcome: the batch that Spark added, its number of partitions, and where the former state is kept."""

    root: str
    batch: int
    partitions: int
    before: int
    kept: str


@dataclass(frozen=True, slots=True)
class RepartitionRequest:
    """What to repartition. A checkpoint is in use if something was written to it in the last `idle_s` seconds."""

    root: str
    partitions: int
    idle_s: float


#: Repartition the checkpoint with this URI by Spark, with these settings. Raises QueryFailed.
Rewriter = Callable[[str, dict[str, str]], None]


def repartition(files: PeaceFileSystem, request: RepartitionRequest, by_spark: Rewriter) -> Repartitioned:
    """Repartition a checkpoint in a cluster. Raises BadRequest if it cannot be, QueryFailed if Spark fails."""
    tree = PeaceTree(files)
    layout = read_layout(tree, request.root)
    check(Inspection(tree, layout), request.partitions)
    with CheckpointRuns(parse_address(files.address), files.user) as runs:
        refuse_live_run(runs, layout, request.idle_s)
        location = runs.begin(request.root, host=socket.gethostname(), pid=os.getpid()).location
        staging = _staging(request)
        try:
            files.copy(request.root, staging, preserve=True)
            done = _rewrite(tree, layout, request, staging, by_spark)
            exchange(files, [(location, staging)])
        except Unjudged as unknown:
            # The staged tree may hold the former state by now, and must stay.
            raise unknown.error from None
        except BaseException:
            _undo(lambda: files.delete(staging, recursive=True), staging)
            _undo(lambda: runs.end(location), location)
            raise
    files.rename(staging, done.kept)
    return done


def repartition_locally(request: RepartitionRequest, by_spark: Rewriter) -> Repartitioned:
    """Repartition a checkpoint on this machine. Raises as `repartition` does."""
    tree = LocalTree()
    request = replace(request, root=Path(request.root).resolve().as_posix())
    layout = read_layout(tree, request.root)
    check(Inspection(tree, layout), request.partitions)
    refuse_live(layout, request.idle_s)
    root, staging = Path(request.root), Path(_staging(request))
    try:
        shutil.copytree(root, staging, symlinks=True)
        done = _rewrite(tree, layout, request, str(staging), by_spark)
        settle(root, staging)
    except OSError as fault:
        discard(staging)
        raise BadRequest(f"{root} cannot be copied, or {alive(str(root))}: {fault}") from None
    except BaseException:
        discard(staging)
        raise
    exchange_locally(root, staging)
    tree.move(str(staging), done.kept)
    sync_directory(str(root.parent))
    return done


def check(inspection: Inspection, partitions: int) -> None:
    """Check that Spark can repartition. Raises BadRequest: Spark's own message would be far longer."""
    layout = inspection.layout
    root, planned, done = layout.root, max(layout.offsets, default=-1), max(layout.commits, default=-1)
    if not is_stateful(layout):
        raise BadRequest(f"{root}: the query has no state to repartition")
    if done < 0:
        raise BadRequest(f"{root}: no batch was done yet, and there is no state to repartition")
    begun = repartition_of(inspection, planned)
    if planned != done:
        if begun is None:
            raise BadRequest(
                f"{root}: batch {planned} is planned and not done: start the query until it is, then stop it"
            )
        if begun != partitions:
            raise BadRequest(
                f"{root}: a repartition to {begun} partitions is not finished: give --partitions {begun}, or "
                "undo it with `peacefs checkpoint repair`"
            )
        return
    try:
        has = inspection.offsets(layout.offsets[planned]).shuffle_partitions
    except CheckpointDamaged as fault:
        raise BadRequest(f"{root}: offsets/{planned} cannot be read: {fault.message}") from None
    if has == partitions:
        raise BadRequest(f"{root}: the state has {partitions} partitions already")
    _refuse_bad(inspection)


def spark_settings(layout: CheckpointLayout) -> dict[str, str]:
    """Return the settings with which Spark writes state in the form that it has."""
    names = [entry.name for files in layout.stores.values() for entry in files.changes.values()]
    names += [entry.name for files in layout.stores.values() for entry in files.snapshots.values()]
    by_records = any(name.endswith((".delta", ".snapshot")) for name in names)
    provider = "HDFSBackedStateStoreProvider" if by_records else "RocksDBStateStoreProvider"
    return {
        _STORE + "providerClass": _PROVIDERS + provider,
        _STORE + "checkpointFormatVersion": str(state_format(layout) or 1),
    }


def _staging(request: RepartitionRequest) -> str:
    # Not a name that `left_over` deletes after a day: after the exchange this directory holds the former state.
    return staging_name(f"{request.root}.repartition-to-{request.partitions}")


def _rewrite(
    tree: Workspace, layout: CheckpointLayout, request: RepartitionRequest, staging: str, by_spark: Rewriter
) -> Repartitioned:
    """Let Spark repartition a copy, and verify the outcome."""
    if set(read_layout(tree, staging).by_path) != set(layout.by_path):
        raise BadRequest(alive(request.root))
    by_spark(tree.uri(staging), spark_settings(layout))
    after = read_layout(tree, staging)
    after.named = request.root
    inspection, batch = Inspection(tree, after), max(after.commits)
    if repartition_of(inspection, batch) != request.partitions:
        raise BadRequest(f"{request.root}: Spark has left no repartition to {request.partitions} in its copy")
    _refuse_bad(inspection)
    before = max(layout.commits)
    query = latest_of(tree, staging)[0]
    identity = tree.identity(request.root)
    record_step(
        tree,
        staging,
        StepKind.REPARTITION,
        request.root,
        source_id=identity,
        query=query,
        batch=batch,
        before=before,
    )
    if read_layout(tree, request.root).by_path != layout.by_path:
        raise BadRequest(alive(request.root))
    when = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    kept = f"{request.root}.before-repartition-to-{request.partitions}.{when}"
    return Repartitioned(request.root, batch, request.partitions, before, kept)


def _refuse_bad(inspection: Inspection) -> None:
    found = next((finding for finding in BatchVerifier(inspection).restart().findings if finding.stops), None)
    if found is not None:
        name = inspection.layout.named
        raise BadRequest(f"{name}: a query could not start: {found.path}: {found.fault}: {found.reason}")


def _undo(step: Callable[[], object], what: str) -> None:
    try:
        step()
    except PeacefsError as fault:
        _log.warning("%s is left over: %s", what, fault.message)
