"""Executes `peacefs put` and `appendToFile`: copies local files and directories into the file system."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from peacefs.client.command_line.descent import Descent, descend
from peacefs.client.command_line.progress import TransferProgress, transfer_progress
from peacefs.client.command_line.session import FilePlace, Session
from peacefs.client.control.values import FileStatus
from peacefs.client.file_objects import FileSink
from peacefs.protocol.errors import FileNotFound, PathIsDirectory
from peacefs.protocol.limits import fast_lane_bytes_max
from peacefs.protocol.values.write_classes import WriteClass

from .copying import copy
from .transfers import FileCopy, TransferOutcome, Transfers, TransferStyle

_STDIN = "-"


def put(session: Session, sources: Sequence[str], target: str, style: TransferStyle) -> None:
    """Copy each source to `target`, or into it if it is a directory.

    Each file becomes visible once all of it is on datanodes' disks, or not at all.
    """
    goal = session.place(target)
    status = goal.status()
    into = status is not None and status.is_directory
    if len(sources) > 1 and not into:
        session.errors.say(target, "No such file or directory" if status is None else "Is not a directory")
        return
    with transfer_progress() as progress, Transfers(session.errors, progress, style) as transfers:
        upload = _Upload(transfers, style)
        for source in sources:
            with transfers.about(goal.text if source == _STDIN else source):
                if not source:
                    transfers.say(source, "No such file or directory")
                elif source == _STDIN:
                    upload.standard_input(goal, progress)
                else:
                    local = Path(source)
                    place = goal.child(local.absolute().name) if into else goal
                    descend(upload.tree(local, place, place.status() if style.resume else None, frozenset()))


def append(session: Session, sources: Sequence[str], target: str) -> None:
    """Append local files to one file, all or none of them. Create the file and its parents if missing."""
    goal = session.place(target)
    with contextlib.ExitStack() as opened:
        parts: list[BinaryIO] = []
        for source in sources:
            # Errors of local files are reported before the file in the cluster is touched.
            parts.append(sys.stdin.buffer if source == _STDIN else opened.enter_context(Path(source).open("rb")))
        with session.errors.about(target):
            status = goal.status()
            if status is not None and status.is_directory:
                raise PathIsDirectory(goal.path)
            sink = (
                goal.files.open_for_writing(goal.path)
                if status is None
                else goal.files.open_for_appending(goal.path)
            )
            with sink:
                for part in parts:
                    copy(part, sink, TransferProgress())


class _Upload:
    def __init__(self, transfers: Transfers, style: TransferStyle) -> None:
        self._transfers = transfers
        self._style = style

    def tree(
        self, local: Path, place: FilePlace, there: FileStatus | None, above: frozenset[tuple[int, int]]
    ) -> Descent:
        """Copy a file, or a directory with everything in it. `above` identifies the parent directories.

        `there` is the target's metadata if the transfer resumes.
        """
        found = local.stat()
        if stat.S_ISREG(found.st_mode):
            self._file(local, found.st_size, place, there, in_tree=bool(above))
        elif not stat.S_ISDIR(found.st_mode):
            self._transfers.say(str(local), "Is neither a file nor a directory")
        elif (identity := (found.st_dev, found.st_ino)) in above:
            self._transfers.say(str(local), "Is a link to a directory that it lies in")
        else:
            with self._transfers.about(place.text):
                place.files.mkdirs(place.path)
                entries = self._entries(place)
                for child in sorted(local.iterdir()):
                    with self._transfers.about(str(child)):
                        there = entries.get(child.name)
                        yield self.tree(child, place.child(child.name), there, above | {identity})

    def _entries(self, place: FilePlace) -> dict[str, FileStatus]:
        if not self._style.resume:
            return {}
        try:
            return {entry.name: entry for entry in place.files.list(place.path)}
        except FileNotFound:
            return {}

    def standard_input(self, place: FilePlace, progress: TransferProgress) -> None:
        progress.name(place.name)
        with self._sink(place, overwrite=self._style.force) as sink:
            copy(sys.stdin.buffer, sink, progress)

    def _sink(self, place: FilePlace, *, overwrite: bool) -> FileSink:
        return place.files.open_for_writing(
            place.path,
            overwrite=overwrite,
            make_parents=False,
            block_bytes=self._style.block_bytes,
            write_class=WriteClass.BULK.word,
        )

    def _file(self, local: Path, size: int, place: FilePlace, there: FileStatus | None, *, in_tree: bool) -> None:
        def run(progress: TransferProgress) -> TransferOutcome:
            return self._copy(local, place, there, progress, in_tree=in_tree)

        self._transfers.begin(FileCopy(str(local), place.text, size, place.text, run))

    def _copy(
        self,
        local: Path,
        place: FilePlace,
        there: FileStatus | None,
        progress: TransferProgress,
        *,
        in_tree: bool,
    ) -> TransferOutcome:
        progress.name(local.name)
        with local.open("rb") as source:
            # Stat before reading the first byte, so that a later change is detected by the time.
            found = os.fstat(source.fileno())
            modified_ms = found.st_mtime_ns // 1_000_000
            if there is not None and (there.length, there.modified_ms) == (found.st_size, modified_ms):
                progress.advance(found.st_size)
                return TransferOutcome.UNCHANGED
            overwrite = self._style.force or self._style.resume
            data = source.read(fast_lane_bytes_max + 1) if in_tree else b""
            if in_tree and len(data) <= fast_lane_bytes_max:
                # One call, since the parent directory was just made.
                place.files.write(place.path, data, overwrite=overwrite, block_bytes=self._style.block_bytes)
                progress.advance(len(data))
            else:
                source.seek(0)
                with self._sink(place, overwrite=overwrite) as sink:
                    copy(source, sink, progress)
        if self._style.resume:
            place.files.set_times(place.path, modified_ms=modified_ms)
        return TransferOutcome.COPIED
