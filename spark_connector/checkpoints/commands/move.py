"""`peacefs checkpoint fork`, `export` and `import`."""

from __future__ import annotations

from pathlib import Path

from peacefs.client.command_line.listing import print_line
from peacefs.client.command_line.presentation import human_size
from peacefs.client.command_line.progress import transfer_progress
from peacefs.client.command_line.session import Session
from peacefs.protocol.errors import BadRequest
from peacefs.spark_connector.checkpoints.places import checkpoint_place
from peacefs.spark_connector.checkpoints.relocation import export, fork, restore
from peacefs.spark_connector.checkpoints.tree import Amount, PeaceTree


def fork_checkpoint(session: Session, source: str, target: str) -> None:
    """Fork a checkpoint and print its size. Raises PeacefsError."""
    from_place, to_place = checkpoint_place(session, source), checkpoint_place(session, target)
    if not from_place.shares_tree_with(to_place):
        raise BadRequest("a fork stays in its file system: export and import go between two")
    _say(to_place.root, fork(to_place.tree, from_place.root, to_place.root))


def export_checkpoint(session: Session, source: str, archive: Path, *, force: bool) -> None:
    """Export a checkpoint and print its size. Raises PeacefsError."""
    place = checkpoint_place(session, source)
    moment = isinstance(place.tree, PeaceTree)
    with transfer_progress() as progress:
        exported = export(place.tree, place.root, archive, progress, moment=moment, force=force)
    _say(str(archive), exported)


def import_checkpoint(session: Session, archive: Path, target: str) -> None:
    """Import a checkpoint and print its size. Raises PeacefsError."""
    place = checkpoint_place(session, target)
    with transfer_progress() as progress:
        imported = restore(archive, place.tree, place.root, progress)
    _say(place.root, imported)


def _say(what: str, amount: Amount) -> None:
    print_line(f"{what}: {amount.files} files, {human_size(amount.bytes)}")
