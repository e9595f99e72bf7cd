"""Executes `peacefs mkdir`, `touchz`, `mv`, `rm` and `expunge`: changes of names, which move no data."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from peacefs.client.control.values import FileStatus
from peacefs.protocol.errors import BadRequest, ParentNotDirectory, PeacefsError
from peacefs.protocol.values.trash import trash_of

from .listing import print_line
from .session import FilePlace, Session


def make_directories(session: Session, texts: Sequence[str], *, parents: bool) -> None:
    """Make directories. With `parents`, make missing parents and accept existing directories; else report both."""
    for text in texts:
        with session.errors.about(text):
            place = session.place(text)
            if not parents and not _can_be_made(session, place):
                continue
            place.files.mkdirs(place.path)


def _can_be_made(session: Session, place: FilePlace) -> bool:
    if place.status() is not None:
        session.errors.say(place.text, "File exists")
        return False
    parent = place.path.rpartition("/")[0] or "/"
    if not place.files.exists(parent):
        session.errors.say(place.text, "No such file or directory")
        return False
    return True


def touch_empty(session: Session, texts: Sequence[str]) -> None:
    """Make empty files. Set the time of empty files that exist, and report other paths, as `hdfs dfs -touchz`."""
    for text in texts:
        with session.errors.about(text):
            place = session.place(text)
            status = place.status()
            if status is None:
                with place.files.open_for_writing(place.path, make_parents=False):
                    pass
            elif status.is_directory:
                session.errors.say(place.text, "Is a directory")
            elif status.length:
                session.errors.say(place.text, "Not a zero-length file")
            else:
                place.files.set_times(place.path, modified_ms=time.time_ns() // 1_000_000)


def move(session: Session, sources: Sequence[str], target: str) -> None:
    """Rename one path, or move several into a directory. Nothing is ever replaced."""
    places = list(session.each(sources))
    goal, into = session.goal_of(places, target)
    if goal is None:
        return
    for source in places:
        with session.errors.about(source.text):
            if source.files is not goal.files:
                raise BadRequest(
                    f"`{source.text}' and `{target}' are in different file systems; get and put instead"
                )
            source.files.status(source.path)
            final = goal.child(source.name) if into else goal
            with session.errors.about(final.text):
                source.files.rename(source.path, final.path)


@dataclass(frozen=True)
class RemoveStyle:
    """The options of `rm`: include directories, ignore missing paths, bypass the trash."""

    recursive: bool
    force: bool
    skip_trash: bool


def remove(session: Session, texts: Sequence[str], style: RemoveStyle) -> None:
    """Move paths to the trash if the cluster has one. With `skip_trash`, or from the trash, delete them."""
    for place in session.each(texts, may_match_nothing=style.force):
        with session.errors.about(place.text):
            status = _status_or_none(place, style)
            if status is None:
                if not style.force:
                    session.errors.say(place.text, "No such file or directory")
            elif status.is_directory and not style.recursive:
                session.errors.say(place.text, "Is a directory")
            elif not style.skip_trash and place.files.trash_minutes() and (moved := _move_to_trash(place)):
                print_line(f"Moved {place.text} to trash at {moved}")
            elif place.files.delete(place.path, recursive=style.recursive):
                print_line(f"Deleted {place.text}")
            elif place.path == "/":
                session.errors.say(place.text, "The root cannot be deleted, only what is in it")
            elif not style.force:
                session.errors.say(place.text, "No such file or directory")


def _status_or_none(place: FilePlace, style: RemoveStyle) -> FileStatus | None:
    try:
        return place.status()
    except ParentNotDirectory:
        if not style.force:
            raise
        return None


def _move_to_trash(place: FilePlace) -> str | None:
    try:
        return place.files.move_to_trash(place.path)
    except PeacefsError as refusal:
        raise type(refusal)(f"{refusal.message} (--skip-trash deletes without the trash)") from None


def expunge(session: Session, *, immediate: bool) -> None:
    """Empty the user's trash, and print the checkpoints that were deleted."""
    place = session.place(".")
    for name in place.files.expunge(immediate=immediate):
        print_line(f"Deleted {trash_of(place.files.user)}/{name}")
