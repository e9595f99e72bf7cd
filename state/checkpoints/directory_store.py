"""Checkpoints in a local directory, or in any file system with hard links.

    <root>/<unit>-<sequence>/index
    <root>/<unit>-<sequence>/pages-<sequence>, and a hard link for each older checkpoint that it refers to

A checkpoint is written in a directory with a hidden name, and renamed after fsync.
"""

from __future__ import annotations

import os
import shutil
import threading
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

from peacefs.protocol.errors import (
    BadRequest,
    CheckpointCancelled,
    CheckpointDamaged,
    FileAlreadyExists,
    FileNotFound,
)
from peacefs.protocol.limits import MIB
from peacefs.state.limits import state_index_bytes_max

from .store import PendingWrite, WriteRequest

# Bytes that a thread writes or reads at once; pages are released piece by piece.
state_piece_bytes: Final = 4 * MIB
# Buffers per piece; Linux takes 1024 per call.
state_piece_buffers_max: Final = 256
state_workers_default: Final = 2


_INDEX: Final = "index"
_WRITING: Final = ".writing"


class DirectoryStore:
    """A `CheckpointStore` below `root`, which is made if needed, for `Checkpointer`. Thread-safe.

    A checkpoint appears by one rename after all its files are synced; nothing overwrites it.
    """

    def __init__(self, root: str | os.PathLike[str], *, workers: int = state_workers_default) -> None:
        """Use `workers` threads to write or read one checkpoint."""
        if workers < 1:
            raise BadRequest(f"{workers} workers would write nothing: at least 1")
        self._root = Path(root)
        self._workers = workers
        self._root.mkdir(parents=True, exist_ok=True)

    def sequences(self, unit: str) -> list[int]:
        found = (_sequence_of(entry.name, unit) for entry in os.scandir(self._root))
        return sorted(sequence for sequence in found if sequence is not None)

    def submit(self, request: WriteRequest, instead_of: PendingWrite | None = None) -> PendingWrite:
        return _PendingDirectory(
            self._directory(request.unit, request.sequence), request, self._root, self._workers
        )

    def index(self, unit: str, sequence: int) -> bytes:
        path = self._directory(unit, sequence) / _INDEX
        try:
            if path.stat().st_size > state_index_bytes_max:
                raise CheckpointDamaged(f"{path} is larger than any index")
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            if not path.parent.exists():
                raise FileNotFound(f"there is no checkpoint {sequence} of {unit} in {self._root}") from None
            raise CheckpointDamaged(f"{path} is not there") from None

    def read_pages(self, unit: str, sequence: int, stored_in: int, target: memoryview) -> None:
        path = self._directory(unit, sequence) / f"pages-{stored_in}"
        try:
            source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise CheckpointDamaged(f"{path} is not there") from None
        try:
            length = os.fstat(source).st_size
            if length != len(target):
                raise CheckpointDamaged(f"{path} has {length} bytes; the index says {len(target)}")
            with ThreadPoolExecutor(self._workers, thread_name_prefix="peacefs-state-read") as threads:
                pieces = range(0, length, state_piece_bytes)
                for done in [threads.submit(_read_piece, source, target, at) for at in pieces]:
                    done.result()
        finally:
            os.close(source)

    def remove(self, unit: str, sequence: int) -> None:
        """Rename the checkpoint to a hidden name first, so that it does not count while it is half removed."""
        hidden = self._root / f".{unit}-{sequence}.{uuid.uuid4().hex[:12]}{_WRITING}"
        try:
            self._directory(unit, sequence).rename(hidden)
        except FileNotFoundError:
            return
        _remove_tree(hidden)

    def remove_left_over(self, unit: str) -> None:
        for entry in list(os.scandir(self._root)):
            checkpoint, _, _ = entry.name.removeprefix(".").removesuffix(_WRITING).rpartition(".")
            if entry.name.endswith(_WRITING) and _sequence_of(checkpoint, unit) is not None:
                _remove_tree(entry.path)

    def _directory(self, unit: str, sequence: int) -> Path:
        if not unit or unit.startswith(".") or "/" in unit or "\0" in unit:
            raise BadRequest(f"{unit!r} cannot be the name of a unit: not empty, without '/', and no '.' in front")
        return self._root / f"{unit}-{sequence}"


def _remove_tree(path: str | Path) -> None:
    """Remove a directory that other processes may be removing at the same time."""

    def unless_gone(_function: object, _path: str, raised: tuple[object, BaseException, object]) -> None:
        if not isinstance(raised[1], FileNotFoundError):
            raise raised[1]

    shutil.rmtree(path, onerror=unless_gone)


class _PendingDirectory:
    """A checkpoint that its own threads write, for `DirectoryStore.submit`; hidden until it is complete."""

    def __init__(self, path: Path, request: WriteRequest, root: Path, workers: int) -> None:
        if path.exists():
            raise FileAlreadyExists(f"{path} exists; a checkpoint is never written over")
        self._path = path
        self._request = request
        self._root = root
        self._workers = workers
        self._stop = threading.Event()
        self._outcome: Future[None] = Future()
        threading.Thread(target=self._run, name="peacefs-state-write", daemon=True).start()

    @property
    def expected_start_s(self) -> float:
        return 0.0

    def wait(self, timeout_s: float | None = None) -> None:
        self._outcome.result(timeout_s)

    def cancel(self) -> bool:
        self._stop.set()
        return self._outcome.exception() is not None

    def _run(self) -> None:
        hidden = self._root / f".{self._path.name}.{uuid.uuid4().hex[:12]}{_WRITING}"
        try:
            self._write(hidden)
        except BaseException as error:
            shutil.rmtree(hidden, ignore_errors=True)
            self._outcome.set_exception(error)
        else:
            self._outcome.set_result(None)

    def _write(self, hidden: Path) -> None:
        request = self._request
        hidden.mkdir()
        for each in request.referred:
            assert request.source is not None, "there is nothing to refer to"
            name = f"pages-{each}"
            (hidden / name).hardlink_to(self._root / f"{request.unit}-{request.source}" / name)
        self._write_pages(hidden / f"pages-{request.sequence}")
        with (hidden / _INDEX).open("xb") as sink:
            sink.write(request.index)
            sink.flush()
            os.fsync(sink.fileno())
        _fsync_directory(hidden)
        self._check()
        # If two writers race, the second fails: a rename does not replace a directory that is not empty.
        try:
            hidden.rename(self._path)
        except OSError:
            if self._path.exists():
                raise FileAlreadyExists(f"{self._path} exists; a checkpoint is never written over") from None
            raise
        _fsync_directory(self._root)

    def _write_pages(self, path: Path) -> None:
        sink = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            pieces = self._pieces()
            if self._workers == 1:
                for piece, offset in pieces:
                    self._write_piece(sink, piece, offset)
            else:
                with ThreadPoolExecutor(self._workers, thread_name_prefix="peacefs-state-write") as threads:
                    for done in [threads.submit(self._write_piece, sink, *piece) for piece in pieces]:
                        done.result()
            os.fsync(sink)
        finally:
            os.close(sink)

    def _pieces(self) -> Iterator[tuple[list[memoryview], int]]:
        """Yield buffers to write with one call, and their offset in the file.

        Cloned pages lie scattered. One call per page would take the GIL thousands of times.
        """
        piece: list[memoryview] = []
        length = offset = 0
        for run in self._request.runs:
            for at in range(0, len(run), state_piece_bytes):
                part = run[at : at + state_piece_bytes]
                if length + len(part) > state_piece_bytes or len(piece) == state_piece_buffers_max:
                    yield piece, offset
                    piece, length, offset = [], 0, offset + length
                piece.append(part)
                length += len(part)
        if piece:
            yield piece, offset

    def _write_piece(self, sink: int, piece: Sequence[memoryview], offset: int) -> None:
        self._check()
        begin = offset
        left = list(piece)
        while left:
            count = os.pwritev(sink, left, offset)
            offset += count
            while left and count >= len(left[0]):
                count -= len(left.pop(0))
            if count:
                left[0] = left[0][count:]
        self._request.written(begin, offset)

    def _check(self) -> None:
        if self._stop.is_set():
            raise CheckpointCancelled(f"{self._path} was cancelled")


def _read_piece(source: int, target: memoryview, at: int) -> None:
    piece = target[at : at + state_piece_bytes]
    while len(piece):
        count = os.preadv(source, [piece], at)
        if not count:
            raise CheckpointDamaged("a file of pages ended while it was read")
        piece, at = piece[count:], at + count


def _fsync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _sequence_of(name: str, unit: str) -> int | None:
    text = name.removeprefix(f"{unit}-")
    if text == name or not (text.isascii() and text.isdigit()) or str(int(text)) != text:
        return None
    return int(text)
