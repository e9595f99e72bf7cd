"""Resolve a command's arguments to checkpoints in a cluster or on this machine (`file:///...`)."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from peacefs.client.command_line.session import Session
from peacefs.protocol.errors import BadRequest
from peacefs.protocol.values.query_runs import without_run

from .tree import LocalTree, PeaceTree, Workspace


@dataclass(frozen=True, slots=True)
class CheckpointPlace:
    """A directory of a tree. `text` is the user's spelling."""

    tree: Workspace
    root: str
    text: str
    #: The address of the coordinator that owns the file system; empty for a local one.
    owner: str = ""

    def shares_tree_with(self, other: CheckpointPlace) -> bool:
        return self.owner == other.owner


def checkpoint_place(session: Session, text: str) -> CheckpointPlace:
    """Resolve one argument. Raises BadRequest."""
    parts = urlsplit(text)
    if parts.scheme != "file":
        place = session.place(text)
        return CheckpointPlace(PeaceTree(place.files), without_run(place.path), text, place.files.address)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise BadRequest(f"{text!r} names no directory of this machine: file:///path does")
    return CheckpointPlace(LocalTree(), posixpath.normpath(Path(unquote(parts.path)).as_posix()), text)
