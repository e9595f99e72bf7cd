"""The driver that performs effects with blocking system calls, on the calling thread.

Blocking calls release the interpreter lock, so participants on many threads run concurrently in the kernel.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.messages import Message
from peacefs.protocol.trace_context import stamped
from peacefs.runtime.counters import fsyncs_of_directories, fsyncs_of_files
from peacefs.runtime.private_files import FILE_MODE, make_directories

from . import effects as fx
from .bounded_reads import BoundedReads
from .connection_pool import ConnectionPool
from .disk_files import DirectFile, DiskFile, list_directory, sync_directory
from .kept_files import KeptFiles
from .tracing import is_tracing, observed_here
from .write_ways import Trial, WriteWays

T = TypeVar("T")
log = logging.getLogger("peacefs.disk")


def _wait(ticket: fx.Ticket, timeout_s: float) -> bool:
    if ticket.fired:
        return True
    # A bare lock: an Event costs ten times as much, and every small chunk waits once.
    woken = threading.Lock()
    woken.acquire()

    def wake() -> None:
        # The lock is already released if the ticket fires twice.
        with contextlib.suppress(RuntimeError):
            woken.release()

    ticket.when_fired(wake)
    return woken.acquire(timeout=max(timeout_s, 0.0))


class ThreadDriver:
    """Runs participants on the calling thread. Each datanode and each client shares one driver among its threads.

    `call_coordinator` sends a control message, with a timeout in seconds, and returns the reply. `sync_to_disk` is
    False only in benchmarks that measure the cost of fsync. With `write_around_cache`, files that are written once
    bypass the page cache if the file system supports it; with None, the driver measures for each disk which way is
    faster. `files_kept_max` is the number of files that stay open between reads of parts of them.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        call_coordinator: Callable[[Message, float], Message],
        *,
        sync_to_disk: bool = True,
        write_around_cache: bool | None = False,
        files_kept_max: int = 0,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._sync_to_disk = sync_to_disk
        # A DirectFile writes its last bytes at the sync; without syncs they would be lost.
        self._write_around_cache = write_around_cache if sync_to_disk else False
        #: Chooses the way of each file, unless `write_around_cache` forces one.
        self.write_ways = WriteWays()
        self._said_no_direct = False
        self.pool = pool
        self._bounded_reads = BoundedReads()
        self.kept_files = KeptFiles(files_max=files_kept_max)
        self._perform: dict[type[fx.Effect], Callable[[Any], Any]] = {
            fx.Connect: lambda e: pool.connect(e.address, e.name),
            fx.Send: lambda e: e.connection.send(stamped(e.message), e.payload, e.timeout_s),
            fx.SendFile: lambda e: e.connection.send_file(e.message, e.file, e.offset, e.length, e.timeout_s),
            fx.SendDescriptor: lambda e: e.connection.send_descriptor(e.message, e.file, e.timeout_s),
            fx.ReceiveDescriptor: lambda e: e.connection.receive_descriptor(e.timeout_s),
            fx.Receive: lambda e: e.connection.receive(e.timeout_s, e.into, e.payload_max),
            fx.ReceiveFrames: lambda e: e.connection.frames_after(e.connection.receive(e.timeout_s), e.more_after),
            fx.SendFrames: lambda e: e.connection.send_frames(e.frames, e.timeout_s),
            fx.ReceiveMore: lambda e: e.connection.receive_more(e.count, e.timeout_s, e.into),
            fx.Release: lambda e: pool.release(e.connection),
            fx.Close: lambda e: pool.close(e.connection),
            fx.Call: lambda e: call_coordinator(stamped(e.message), e.timeout_s),
            fx.OpenLocalFile: self._open_file,
            fx.AppendToFile: self._append,
            fx.ReadPart: lambda e: self.kept_files.read(e.path, e.offset, e.length),
            fx.ReadFromMemory: lambda e: [self.kept_files.read_from_memory(*part) for part in e.parts],
            fx.ReadAt: lambda e: os.pread(e.file.descriptor, e.length, e.offset),
            fx.ReadInto: lambda e: self._bounded_reads.read_into(e.file, e.target, e.offset, e.timeout_s),
            fx.ReadAhead: lambda e: self._bounded_reads.read_ahead(e.file, e.offset, e.length),
            fx.StartWriteback: self._start_writeback,
            fx.Sync: self._sync,
            fx.DropCached: self._drop_cached,
            fx.TruncateFile: self._truncate,
            fx.CloseFile: self._close_file,
            fx.RenameFile: lambda e: os.replace(e.source, e.target),  # noqa: PTH105
            fx.SyncDirectory: lambda e: self.sync_directory(e.path),
            fx.Remove: lambda e: Path(e.path).unlink(missing_ok=True),
            fx.MakeDirectory: lambda e: make_directories(e.path),
            fx.ListDirectory: lambda e: list_directory(e.path),
            fx.Now: lambda e: time.monotonic(),
            fx.WallClock: lambda e: wall_clock(),
            fx.Sleep: lambda e: time.sleep(e.seconds),
            fx.Wait: lambda e: _wait(e.ticket, e.timeout_s),
            fx.Spawn: lambda e: threading.Thread(target=self.run, args=(e.steps,), daemon=True).start(),
        }

    def close(self) -> None:
        """Close kept files and threads, after the last participant has ended."""
        self._bounded_reads.close()
        self.kept_files.close()

    def run(self, steps: fx.Steps[T]) -> T:
        """Run a participant to its end; its exceptions are raised here."""
        perform = self._perform
        if is_tracing():
            steps = observed_here(steps)
        try:
            effect = next(steps)
            while True:
                try:
                    result = perform[type(effect)](effect)
                except (PeacefsError, OSError, KeyboardInterrupt) as fault:
                    # Ctrl-C, too, so that the participant can clean up.
                    effect = steps.throw(fault)
                else:
                    effect = steps.send(result)
        except StopIteration as stop:
            finished: T = stop.value
            return finished

    def perform(self, effect: fx.Effect) -> Any:
        """Perform one effect, for another driver that delegates it."""
        return self._perform[type(effect)](effect)

    def performer(self, kind: type[fx.Effect]) -> Callable[[Any], Any]:
        """Return the function that performs effects of this class."""
        return self._perform[kind]

    def _open_file(self, effect: fx.OpenLocalFile) -> DiskFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_TRUNC if effect.create else 0)
        if effect.written_once and self._write_around_cache is None:
            return self._open_measured(effect.path, flags)
        if effect.written_once and self._write_around_cache:
            direct = self._open_direct(effect.path, flags)
            if direct is not None:
                return direct
        return self._open_cached(effect, flags)

    def _open_measured(self, path: str, flags: int) -> DiskFile:
        """Open a file in the way that `WriteWays` chooses, and begin to measure its writes."""
        directory = Path(path).parent
        trial = self.write_ways.begin(directory.stat().st_dev, str(directory), time.monotonic())
        try:
            file: DiskFile | None = self._open_direct(path, flags) if trial.is_around else None
            if file is None:
                if trial.is_around:
                    self.write_ways.has_no_around(trial)
                file = DiskFile(os.open(path, flags, FILE_MODE))
        except OSError:
            self.write_ways.given_up(trial)
            raise
        file.trial = trial
        return file

    def _append(self, effect: fx.AppendToFile) -> None:
        file = effect.file
        assert isinstance(file, DiskFile)
        if file.trial is None:
            file.append(effect.buffers)
            return
        with self._measured(file.trial):
            file.append(effect.buffers)

    @contextlib.contextmanager
    def _measured(self, trial: Trial) -> Iterator[None]:
        self.write_ways.works(trial, time.monotonic())
        try:
            yield
        finally:
            self.write_ways.rests(trial, time.monotonic())

    def _close_file(self, effect: fx.CloseFile) -> None:
        assert isinstance(effect.file, DiskFile)
        if effect.file.trial is not None:
            self.write_ways.given_up(effect.file.trial)
        os.close(effect.file.descriptor)

    def _open_cached(self, effect: fx.OpenLocalFile, flags: int) -> DiskFile:
        try:
            return DiskFile(os.open(effect.path, flags, FILE_MODE))
        except OSError as error:
            # A read-only disk can still be read; an append will fail.
            if error.errno != errno.EROFS or effect.create:
                raise
            return DiskFile(os.open(effect.path, os.O_RDONLY | os.O_CLOEXEC))

    def _open_direct(self, path: str, flags: int) -> DirectFile | None:
        """Open a file with O_DIRECT; None if the file system does not support it, which is logged once."""
        try:
            return DirectFile(os.open(path, flags | os.O_DIRECT, FILE_MODE))
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
        if not self._said_no_direct:
            self._said_no_direct = True
            log.warning("%s: this file system has no O_DIRECT; its chunks go through the page cache", path)
        return None

    def _start_writeback(self, effect: fx.StartWriteback) -> None:
        file = effect.file
        assert isinstance(file, DiskFile)
        if not self._sync_to_disk:
            return
        if file.trial is None:
            file.begin_writeback()
            return
        # It waits if the disk's queue is full.
        with self._measured(file.trial):
            file.begin_writeback()

    def _sync(self, effect: fx.Sync) -> None:
        file = effect.file
        assert isinstance(file, DiskFile)
        if not self._sync_to_disk:
            return
        fsyncs_of_files.inc()
        if file.trial is None:
            file.sync()
            return
        with self._measured(file.trial):
            file.sync()
        if isinstance(file, DirectFile) and file.was_refused:
            self.write_ways.has_no_around(file.trial)
        self._written(file.trial, file.end)

    def _written(self, trial: Trial, size: int) -> None:
        chosen = self.write_ways.written(trial, size)
        if chosen is not None:
            log.info(
                "%s: large chunks now go %s the page cache; a MiB takes %.2f ms through it, %.2f around it",
                chosen.directory,
                "around" if chosen.is_around else "through",
                chosen.through_s * 1000,
                chosen.around_s * 1000,
            )

    def sync_directory(self, path: str) -> None:
        if self._sync_to_disk:
            fsyncs_of_directories.inc()
            sync_directory(path)

    def _drop_cached(self, effect: fx.DropCached) -> None:
        assert isinstance(effect.file, DiskFile)
        os.posix_fadvise(effect.file.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def _truncate(self, effect: fx.TruncateFile) -> None:
        file = effect.file
        assert isinstance(file, DiskFile)
        os.ftruncate(file.descriptor, effect.length)
        file.end = effect.length
