"""`peacefs checkpoint rollback`, `repair` and `prune`."""

from __future__ import annotations

import os
import socket

import msgspec

from peacefs.client.command_line.listing import print_line
from peacefs.client.command_line.presentation import human_size
from peacefs.client.command_line.session import Session
from peacefs.client.control.addresses import parse_address
from peacefs.client.control.query_runs import CheckpointRuns
from peacefs.protocol.errors import BadRequest
from peacefs.protocol.values.query_runs import without_run
from peacefs.spark_connector.checkpoints.catalogue import read_layout
from peacefs.spark_connector.checkpoints.inspection import Inspection
from peacefs.spark_connector.checkpoints.local_rollback import roll_back_locally
from peacefs.spark_connector.checkpoints.places import checkpoint_place
from peacefs.spark_connector.checkpoints.pruning import Retention, plan_pruning
from peacefs.spark_connector.checkpoints.repairing import repair
from peacefs.spark_connector.checkpoints.rollback import (
    RollbackRequest,
    refuse_live,
    refuse_live_run,
    roll_back,
)


def roll_back_checkpoint(
    session: Session,
    text: str,
    batch: int,
    *,
    sink: str | None,
    no_file_sink: bool,
    may_differ: bool,
    idle_s: float,
    as_json: bool,
) -> None:
    """Roll back and print the outcome. Raises PeacefsError."""
    if (sink is None) is not no_file_sink:
        raise BadRequest(
            "a checkpoint does not name its sink, and a file sink would skip the batches that come again: "
            "say --with-sink DIR, or --no-file-sink"
        )
    sink_path = None
    if text.startswith("file:"):
        root = checkpoint_place(session, text).root
        done = roll_back_locally(RollbackRequest(root, batch, sink, idle_s, may_differ))
    else:
        place = session.place(text)
        if sink is not None:
            sink_place = session.place(sink)
            if sink_place.files is not place.files:
                raise BadRequest(
                    f"{sink} is in another file system than the checkpoint: both cannot change at once"
                )
            sink_path = sink_place.path
        request = RollbackRequest(without_run(place.path), batch, sink_path, idle_s, may_differ)
        done = roll_back(place.files, request)
    if as_json:
        print_line(msgspec.json.encode(done).decode())
        return
    print_line(
        f"{done.root}: batch {done.batch} is the latest, before it was {done.before}; {done.removed} files gone"
    )
    for kept in done.kept:
        print_line(f"as it was before: {kept}")
    if sink_path is not None:
        print_line(
            f"{sink_path}: what later batches wrote is no longer listed; the files themselves are still there"
        )
    if done.repeats is not None:
        print_line(f"batch {done.repeats} is repeated as it was planned")
    if done.may_differ:
        print_line(
            f"from batch {done.may_differ[0]} on batches are planned anew and may hold other rows than before"
        )
    print_line("no other sink is undone: what later batches gave it stays there, and is given again")


def repair_checkpoint(session: Session, text: str, *, may_differ: bool, idle_s: float, as_json: bool) -> None:
    """Make the repair that `verify` proposes, and print it. Raises PeacefsError."""
    place = checkpoint_place(session, text)
    layout = read_layout(place.tree, place.root)
    if place.owner:
        with CheckpointRuns(parse_address(place.owner), session.place(text).files.user) as runs:
            refuse_live_run(runs, layout, idle_s)
            location = runs.begin(place.root, host=socket.gethostname(), pid=os.getpid()).location
            try:
                done = repair(place.tree, place.root, may_differ=may_differ, write_root=location)
            finally:
                runs.end(location)
    else:
        refuse_live(layout, idle_s)
        done = repair(place.tree, place.root, may_differ=may_differ)
    if as_json:
        print_line(msgspec.json.encode(done).decode())
        return
    for path in done.repair.remove:
        print_line(f"removed: {path}")
    print_line(f"{done.root}: {done.repair.reason}; a query goes on with batch {done.repair.goes_on_with}")
    print_line(f"what was removed is in {done.kept}")


def prune_checkpoint(session: Session, text: str, retention: Retention, *, delete: bool, idle_s: float) -> None:
    """Print what may be deleted, and with `delete` delete it. Raises PeacefsError."""
    if retention.batches is None and retention.age_ms is None and retention.bytes is None:
        raise BadRequest("say what to keep: --keep-batches, --keep-hours or --keep-bytes")
    place = checkpoint_place(session, text)
    layout = read_layout(place.tree, place.root)
    if delete:
        refuse_live(layout, idle_s)
    pruning = plan_pruning(Inspection(place.tree, layout), retention)
    for kind, entries in (("outdated", pruning.outdated), ("orphan", pruning.orphans)):
        for entry in entries:
            print_line(f"{kind}: {layout.relative(entry)}")
            if delete:
                place.tree.remove(entry.path)
    freed = human_size(sum(entry.length for entry in pruning.entries))
    done = "deleted" if delete else "may go: --delete deletes them"
    print_line(
        f"{layout.root}: kept from batch {pruning.oldest} on; {len(pruning.entries)} files, {freed}, {done}"
    )
