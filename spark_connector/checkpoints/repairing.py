"""Repair a checkpoint in place: move the files that prevent a start to a directory beside it.

Each file is copied before it is removed, so a killed repair loses nothing and can be repeated.
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
    """The repair that was made, and the directory that holds the removed files."""

    root: str
    repair: CheckpointRepair
    kept: str


def repair(tree: Workspace, root: str, *, may_differ: bool, write_root: str | None = None) -> Repaired:
    """Repair a checkpoint. Raises BadRequest if nothing is wrong, or if no known repair helps.

    `write_root` is the root's path for the present run. Without `may_differ` no plan of a batch is removed.
    """
    layout = read_layout(tree, root)
    found = find_repair(Inspection(tree, layout))
    if found is None:
        raise BadRequest(f"{root}: no file can be removed to make a start possible; verify says what prevents it")
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
    """Return `name`, with a number appended if a repair in the same second has taken it."""
    candidates = (f"{name}.{number}" if number else name for number in itertools.count())
    return next(candidate for candidate in candidates if not tree.exists(candidate))


def _with_checksums(layout: CheckpointLayout, paths: list[str]) -> list[str]:
    """Put checksum files first: a file is readable without its checksum, not the other way round."""
    checksums = [layout.relative(entry) for path in paths for entry in layout.checksum_files(path)]
    return [*checksums, *paths]
