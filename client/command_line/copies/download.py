"""Executes `peacefs get`, `cat`, `tail` and `checksum`: reads files and directories of the file system.

A byte whose checksum does not match is never written.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from peacefs.client.command_line.descent import Descent, descend
from peacefs.client.command_line.listing import print_line
from peacefs.client.command_line.progress import TransferProgress, transfer_progress
from peacefs.client.command_line.session import FilePlace, Session
from peacefs.client.control.values import FileStatus
from peacefs.client.transfer.hdfs_checksum import FileChecksum
from peacefs.protocol.errors import ChunkUnavailable, PathIsDirectory
from peacefs.protocol.limits import packet_bytes

from .copying import copy
from .transfers import FileCopy, TransferOutcome, Transfers, TransferStyle

#: The same as `hdfs dfs -tail`.
_TAIL_BYTES = 1024
# How often `tail -f` looks for new bytes.
_FOLLOW_S: Final = 1.0


def get(session: Session, sources: Sequence[str], target: str, style: TransferStyle) -> None:
    """Copy each source to `target`, or into it if it is a directory."""
    if not target:
        session.errors.say(target, "No such file or directory")
        return
    goal = Path(target)
    into = goal.is_dir()
    places = list(session.each(sources))
    if len(places) > 1 and not into:
        session.errors.say(target, "Is not a directory" if goal.exists() else "No such file or directory")
        return
    with transfer_progress() as progress, Transfers(session.errors, progress, style) as transfers:
        download = _Download(transfers, style)
        for place in places:
            with transfers.about(place.text):
                status = place.files.status(place.path)
                descend(download.tree(place, status, goal / place.name if into else goal))


def cat(session: Session, sources: Sequence[str]) -> None:
    """Write each file to stdout."""
    for place in session.each(sources):
        with session.errors.about(place.text), place.files.open(place.path) as source:
            copy(source, sys.stdout.buffer, TransferProgress())


def tail(session: Session, sources: Sequence[str]) -> None:
    """Write the last KiB of each file to stdout."""
    for place in session.each(sources):
        with session.errors.about(place.text), place.files.open(place.path) as source:
            source.seek(max(0, source.length - _TAIL_BYTES))
            copy(source, sys.stdout.buffer, TransferProgress())


def follow(session: Session, text: str) -> None:
    """Write the last KiB of a file to stdout, and then what is appended to it, until the caller is interrupted.

    A file that is replaced or cut is written again from its start. Ends with an error when the file is deleted.
    """
    for place in session.each([text]):
        with session.errors.about(place.text):
            shown, position = place.files.status(place.path), -1
            if shown.is_directory:
                raise PathIsDirectory(place.path)
            while True:
                if position < 0:
                    position = max(0, shown.length - _TAIL_BYTES)
                if shown.length > position:
                    with place.files.open(place.path) as source:
                        source.seek(position)
                        position += copy(source, sys.stdout.buffer, TransferProgress())
                    sys.stdout.buffer.flush()
                time.sleep(_FOLLOW_S)
                now = place.files.status(place.path)
                if now.file_id != shown.file_id or now.length < position:
                    position = 0
                shown = now


def show_checksums(session: Session, texts: Sequence[str]) -> None:
    """Print the path, HDFS's name of the algorithm and the checksum of each file, as `hdfs dfs -checksum`."""
    for place in session.each(texts):
        with session.errors.about(place.text):
            status = place.files.status(place.path)
            checksum = FileChecksum(status.block_bytes)
            with place.files.open(place.path) as source:
                while piece := source.read(packet_bytes):
                    checksum.take_in(piece)
            algorithm, value = checksum.told()
            print_line(place.text, algorithm, value.hex())


class _Download:
    def __init__(self, transfers: Transfers, style: TransferStyle) -> None:
        self._transfers = transfers
        self._style = style

    def tree(self, place: FilePlace, status: FileStatus, local: Path) -> Descent:
        """Copy a file, or a directory with everything in it."""
        if not status.is_directory:
            self._file(place, status, local)
            return
        local.mkdir(exist_ok=True)
        for page in place.files.pages(place.path):
            for entry in page.entries:
                child = place.child(entry.name)
                with self._transfers.about(child.text):
                    yield self.tree(child, entry, local / entry.name)

    def _file(self, place: FilePlace, status: FileStatus, local: Path) -> None:
        if local.exists() and not (self._style.force or self._style.resume):
            self._transfers.say(str(local), "File exists")
            return
        if local.exists() and not local.is_file():
            # The rename would replace a device by a file.
            self._transfers.say(str(local), "Not a regular file; `peacefs cat` writes to where it is sent")
            return

        def run(progress: TransferProgress) -> TransferOutcome:
            return self._copy(place, status, local, progress)

        self._transfers.begin(FileCopy(place.text, str(local), status.length, place.text, run))

    def _copy(
        self, place: FilePlace, status: FileStatus, local: Path, progress: TransferProgress
    ) -> TransferOutcome:
        progress.name(place.name)
        if self._style.resume and _is_same(local, status):
            progress.advance(status.length)
            return TransferOutcome.UNCHANGED
        # In the target's directory, so that the rename is atomic. Of fixed length, because the target's name may
        # be as long as names can be.
        staged = local.with_name(f".peacefs-{secrets.token_hex(8)}.part")
        try:
            with place.files.open(place.path) as source, staged.open("xb", buffering=0) as sink:
                copied = copy(source, sink, progress)
                if copied != source.length:
                    raise ChunkUnavailable(f"{copied} of {source.length} bytes could be read")
                if self._style.resume:
                    # If another file replaced the listed one, its time differs, and the next run fetches it again.
                    os.utime(sink.fileno(), ns=(status.accessed_ms * 1_000_000, status.modified_ms * 1_000_000))
                os.fsync(sink.fileno())
            staged.replace(local)
            _sync_directory(local.parent)
        except BaseException as fault:
            with contextlib.suppress(OSError):
                staged.unlink()
            if isinstance(fault, OSError):
                # Report the name that the user gave instead of the staged one.
                fault.filename = str(local)
            raise
        return TransferOutcome.COPIED


def _is_same(local: Path, status: FileStatus) -> bool:
    """Return whether a local file has the length and modification time of a file in the cluster."""
    try:
        found = local.stat()
    except FileNotFoundError:
        return False
    return (found.st_size, found.st_mtime_ns // 1_000_000) == (status.length, status.modified_ms)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
