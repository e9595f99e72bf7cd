"""Repair a checkpoint in its place: what is in the way goes to a directory beside it.

A file is copied there before it is removed, so that a repair that is killed loses nothing and can be given again.
"""

from __future__ import annotations

import itertools
import posixpath
import shutil
import time
from dataclasses import dataclass

from peacefs.protocol.errors import BadRequest

from .catalogue import read_layout
from .findings import CheckpointRepair
from .inspection import Inspection
from .layout import CheckpointLayout
from .repairs import find_repair
from .tree import Workspace


@dataclass(frozen=True, slots=True)
class Repaired:
    """The repair that was made, and the directory with what was removed."""

    root: str
    repair: CheckpointRepair
    kept: str


def repair(tree: Workspace, root: str, *, may_differ: bool, write_root: str | None = None) -> Repaired:
    """Raises BadRequest where there is nothing to repair, or nothing known that would.

    `write_root` is the root for the run that this is. Without `may_differ` no plan of a batch is removed.
    """
    layout = read_layout(tree, root)
    found = find_repair(Inspection(tree, layout))
    if found is None:
        raise BadRequest(f"{root}: no file is in the way of a start whose removal would help; verify says what is")
    if found.plans_anew is not None and not may_differ:
        raise BadRequest(
            f"{root}: batch {found.plans_anew} would be planned anew, without {found.files}, and may "
            "hold other rows: a sink that goes by batch numbers (foreachBatch code that skips those it has seen, "
            "Delta Lake's txnVersion) and has it would lose rows; if yours does not, say --batches-may-differ"
        )
    kept = _new_name(tree, f"{root}.before-repair.{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}")
    for path in _with_checksums(layout, found.remove):
        with tree.open(f"{root}/{path}") as source, tree.create(posixpath.join(kept, path)) as target:
            shutil.copyfileobj(source, target)
        tree.remove(f"{write_root or root}/{path}")
    return Repaired(root, found, kept)


def _new_name(tree: Workspace, name: str) -> str:
    """The name, with a number behind it where one is there from a repair of this second."""
    candidates = (f"{name}.{number}" if number else name for number in itertools.count())
    return next(candidate for candidate in candidates if not tree.exists(candidate))


def _with_checksums(layout: CheckpointLayout, paths: list[str]) -> list[str]:
    """Checksums go first: a file without one is what it was, one that is not there is missed."""
    checksums = [layout.relative(entry) for path in paths for entry in layout.checksum_files(path)]
    return [*checksums, *paths]
