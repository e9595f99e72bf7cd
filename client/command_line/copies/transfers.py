"""Concurrent copies of files on threads, for `put` and `get`.

Results and errors are reported in the order in which the files were found, whichever copy ends first.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Final, Self

import msgspec

from peacefs.client.command_line.errors import CommandErrors
from peacefs.client.command_line.listing import print_line
from peacefs.client.command_line.progress import TransferProgress
from peacefs.protocol.limits import chunk_bytes_max

transfers_listed_ahead_max: Final = 256


@dataclass(frozen=True)
class TransferStyle:
    """The options of `put` and `get`. `force` replaces files, never directories.

    `resume` skips files that exist with the same length and modification time, replaces others, and gives copies
    the source's time. `block_bytes` is for new files in the cluster.
    """

    force: bool = False
    resume: bool = False
    jobs: int = 1
    as_json: bool = False
    block_bytes: int = chunk_bytes_max


class TransferOutcome(Enum):
    """The result of a copy."""

    COPIED = "copied"
    #: The target existed already, with the same length and time.
    UNCHANGED = "unchanged"
    FAILED = "failed"


@dataclass(frozen=True)
class FileCopy:
    """A file to be copied by `run`, which reports progress. Errors are reported for the path `complaint`."""

    source: str
    target: str
    length: int
    complaint: str
    run: Callable[[TransferProgress], TransferOutcome]


class Transfers:
    """Copies files on threads. One thread lists the files; leaving the block early stops the copies under way."""

    def __init__(self, errors: CommandErrors, progress: TransferProgress, style: TransferStyle) -> None:
        self._errors = errors
        self._progress = _SharedProgress(progress)
        self._as_json = style.as_json
        self._threads = ThreadPoolExecutor(style.jobs, thread_name_prefix="peacefs-copy")
        self._under_way: deque[tuple[FileCopy, Future[TransferOutcome]]] = deque()
        self._counts = dict.fromkeys(TransferOutcome, 0)
        self._copied_bytes = 0
        self._began_s = time.monotonic()

    def begin(self, copy: FileCopy) -> None:
        """Copy a file as soon as a thread is free."""
        self._progress.expect(copy.length)
        self._under_way.append((copy, self._threads.submit(copy.run, self._progress)))
        while len(self._under_way) > transfers_listed_ahead_max or (
            self._under_way and self._under_way[0][1].done()
        ):
            self._end_first()

    @contextlib.contextmanager
    def about(self, place: str) -> Iterator[None]:
        """Run the block. Report its error for this path, after those of files found earlier, and continue."""
        with self._errors.about(place):
            try:
                yield
            except Exception:
                self._end_all()
                raise

    def say(self, place: str, reason: str) -> None:
        """Report a problem of a path, in order."""
        self._end_all()
        self._errors.say(place, reason)

    def _end_all(self) -> None:
        while self._under_way:
            self._end_first()

    def _end_first(self) -> None:
        copy, future = self._under_way.popleft()
        with self._errors.about(copy.complaint):
            outcome = TransferOutcome.FAILED
            try:
                outcome = future.result()
            finally:
                self._tell(copy, outcome)

    def _tell(self, copy: FileCopy, outcome: TransferOutcome) -> None:
        self._counts[outcome] += 1
        if outcome is TransferOutcome.COPIED:
            self._copied_bytes += copy.length
        if self._as_json:
            told = {"type": "file", "source": copy.source, "target": copy.target, "length": copy.length}
            print_line(msgspec.json.encode(told | {"outcome": outcome.value}).decode())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._end_all()
        finally:
            self._progress.stopped = True
            self._threads.shutdown(cancel_futures=True)
        if error is None and self._as_json:
            told: dict[str, object] = {"type": "summary", "bytes": self._copied_bytes}
            told |= {outcome.value: count for outcome, count in self._counts.items()}
            told["seconds"] = round(time.monotonic() - self._began_s, 3)
            print_line(msgspec.json.encode(told).decode())


class _SharedProgress(TransferProgress):
    """A progress that several threads share. When it is stopped, it ends their copies."""

    def __init__(self, shared: TransferProgress) -> None:
        self.shown = shared.shown
        self.stopped = False
        self._shared = shared
        self._lock = threading.Lock()

    def expect(self, size: int) -> None:
        with self._lock:
            self._shared.expect(size)

    def name(self, name: str) -> None:
        with self._lock:
            self._shared.name(name)

    def advance(self, size: int) -> None:
        if self.stopped:
            raise CancelledError
        with self._lock:
            self._shared.advance(size)
