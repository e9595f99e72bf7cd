"""`peacefs put`: local files and directories into the file system."""

from __future__ import annotations

import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from .copying import copy
from .progress import TransferProgress, transfer_progress
from .session import FilePlace, Session

_STDIN = "-"


def put(session: Session, sources: Sequence[str], target: str, *, force: bool) -> None:
    """Copies each source to `target`, or into it when it is a directory. `force` replaces files that are there.

    Each file appears whole when all of it is on datanodes' disks, or not at all.
    """
    goal = session.place(target)
    status = goal.status()
    into = status is not None and status.is_directory
    if len(sources) > 1 and not into:
        session.errors.say(target, "No such file or directory" if status is None else "Is not a directory")
        return
    with transfer_progress() as progress:
        upload = _Upload(session, progress, force)
        for source in sources:
            with session.errors.about(goal.text if source == _STDIN else source):
                if not source:
                    session.errors.say(source, "No such file or directory")
                elif source == _STDIN:
                    upload.standard_input(goal)
                else:
                    local = Path(source)
                    upload.tree(local, goal.child(local.absolute().name) if into else goal, ())


class _Upload:
    def __init__(self, session: Session, progress: TransferProgress, force: bool) -> None:
        self._errors = session.errors
        self._progress = progress
        self._force = force

    def tree(self, local: Path, place: FilePlace, above: tuple[tuple[int, int], ...]) -> None:
        """A file, or a directory with all that is in it. `above` are the directories that lead here."""
        found = local.stat()
        if stat.S_ISREG(found.st_mode):
            self._file(local, found.st_size, place)
        elif not stat.S_ISDIR(found.st_mode):
            self._errors.say(str(local), "Is neither a file nor a directory")
        elif (identity := (found.st_dev, found.st_ino)) in above:
            self._errors.say(str(local), "Is a link to a directory that it lies in")
        else:
            with self._errors.about(place.text):
                place.files.mkdirs(place.path)
                for child in sorted(local.iterdir()):
                    with self._errors.about(str(child)):
                        self.tree(child, place.child(child.name), (*above, identity))

    def standard_input(self, place: FilePlace) -> None:
        self._progress.name(place.name)
        with place.files.open_for_writing(place.path, overwrite=self._force, make_parents=False) as sink:
            copy(sys.stdin.buffer, sink, self._progress)

    def _file(self, local: Path, size: int, place: FilePlace) -> None:
        self._progress.name(local.name)
        self._progress.expect(size)
        with (
            local.open("rb") as source,
            self._errors.about(place.text),
            place.files.open_for_writing(place.path, overwrite=self._force, make_parents=False) as sink,
        ):
            copy(source, sink, self._progress)
