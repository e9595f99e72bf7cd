"""Runs of queries: the present writer of a checkpoint root, and the earlier ones.

A run is a row of the root directory, and moves with it in a rename. A copy of the directory has no runs, and
neither has another directory of the same name. The run's number comes from the coordinator's sequence, so no two
runs ever have the same.
"""

from __future__ import annotations

from peacefs.coordinator.limits import list_page_entries
from peacefs.coordinator.metadata.model import Inode, InodeId, InodeKind, RecordedRun
from peacefs.coordinator.metadata.reader import Reader
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.protocol.errors import BadRequest, ParentNotDirectory
from peacefs.protocol.ids import show
from peacefs.protocol.values.query_runs import RunStatus

from .paths import NamespacePath, Writer
from .resolution import existing_inode, find_existing


def begin(tx: Transaction, root: NamespacePath, run: RecordedRun) -> None:
    """Make a run the writer of a directory, and refuse writes of earlier runs. Raises FileNotFound."""
    directory = find_existing(tx, root)
    if directory.kind is InodeKind.FILE:
        raise ParentNotDirectory(f"{root} (is not a directory)")
    tx.set_run(directory.inode, run)


def end(tx: Transaction, location: NamespacePath, now_ms: int) -> None:
    """Record that a run has ended. Repeating it changes nothing. Raises RunSuperseded, BadRequest."""
    if location.writer is None or location.writer.depth != len(location.components):
        raise BadRequest(f"{location} is no location of a run: the answer to its beginning has that")
    directory = find_existing(tx, location).inode
    run = tx.run(directory)
    assert run is not None, "the way there is open to the latest run alone"
    if run.ended_ms is None:
        tx.set_run(directory, run._replace(ended_ms=now_ms))


def status(reader: Reader, directory: InodeId, path: NamespacePath, run: RecordedRun) -> RunStatus:
    """Describe the latest run of a directory."""
    plain = NamespacePath(path.components)
    return RunStatus(
        path=str(plain),
        run=show(run.number),
        location=str(location(plain, run.number)),
        user=run.user,
        host=run.host,
        pid=run.pid,
        since_ms=run.since_ms,
        ended_ms=run.ended_ms,
        last_write_ms=_last_write_ms(reader, existing_inode(reader, directory)),
    )


def location(root: NamespacePath, number: int) -> NamespacePath:
    """Return the location that a run gets for its root."""
    return NamespacePath(root.components, writer=Writer(len(root.components), number))


def _last_write_ms(reader: Reader, root: Inode) -> int:
    """Return the time of the last write: each batch changes `offsets` and `commits`, directly below the root."""
    children = reader.children(root.inode, "", list_page_entries)
    return max([root.modified_ms, *(child.modified_ms for _, child in children)])
