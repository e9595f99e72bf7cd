"""Executes `peacefs cp`. Within a cluster it copies names and shares data; between clusters it copies data."""

from __future__ import annotations

import posixpath
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from peacefs.client.command_line.descent import Descent, descend
from peacefs.client.command_line.progress import TransferProgress, transfer_progress
from peacefs.client.command_line.session import FilePlace, Session
from peacefs.client.control.values import FileStatus
from peacefs.protocol.values.write_classes import WriteClass

from .copying import copy


@dataclass(frozen=True)
class CopyStyle:
    """The options of `cp`. `force` replaces files, never directories."""

    recursive: bool
    force: bool
    preserve: bool


def copy_all(session: Session, sources: Sequence[str], target: str, style: CopyStyle) -> None:
    """Copy each source to `target`, or into it if it is a directory."""
    places = list(session.each(sources))
    goal, into = session.goal_of(places, target)
    if goal is None:
        return
    with transfer_progress() as progress:
        for place in places:
            with session.errors.about(place.text):
                found = place.files.status(place.path)
                if found.is_directory and not style.recursive:
                    session.errors.say(place.text, "Is a directory (copied only with -r)")
                    continue
                final = goal.child(place.name) if into else goal
                with session.errors.about(final.text):
                    _copy_one(session, place, found, final, style, progress)


def _copy_one(
    session: Session,
    source: FilePlace,
    found: FileStatus,
    goal: FilePlace,
    style: CopyStyle,
    progress: TransferProgress,
) -> None:
    there = goal.status()
    if there is not None and (there.is_directory or found.is_directory or not style.force):
        session.errors.say(goal.text, "File exists")
    elif source.files is not goal.files:
        descend(_Transfer(session, style, progress).tree(source, found, goal))
    elif there is None:
        source.files.copy(source.path, goal.path, preserve=style.preserve)
    else:
        _replace(source, goal, style)


def _replace(source: FilePlace, goal: FilePlace, style: CopyStyle) -> None:
    """Replace a file atomically by a copy of another."""
    staged = posixpath.join(posixpath.dirname(goal.path), f".peacefs-{secrets.token_hex(8)}.part")
    source.files.copy(source.path, staged, preserve=style.preserve)
    try:
        source.files.rename(staged, goal.path, overwrite=True)
    except BaseException:
        source.files.delete(staged)
        raise


class _Transfer:
    """Copies from one cluster to another, file by file."""

    def __init__(self, session: Session, style: CopyStyle, progress: TransferProgress) -> None:
        self._errors = session.errors
        self._style = style
        self._progress = progress

    def tree(self, source: FilePlace, found: FileStatus, goal: FilePlace) -> Descent:
        if not found.is_directory:
            self._file(source, found, goal)
            return
        goal.files.mkdirs(goal.path, found.permission)
        for page in source.files.pages(source.path):
            for entry in page.entries:
                child = source.child(entry.name)
                with self._errors.about(child.text):
                    yield self.tree(child, entry, goal.child(entry.name))

    def _file(self, source: FilePlace, found: FileStatus, goal: FilePlace) -> None:
        self._progress.name(source.name)
        self._progress.expect(found.length)
        with (
            source.files.open(source.path) as opened,
            goal.files.open_for_writing(
                goal.path,
                overwrite=self._style.force,
                make_parents=False,
                permission=found.permission,
                write_class=WriteClass.BULK.word,
            ) as sink,
        ):
            copy(opened, sink, self._progress)
