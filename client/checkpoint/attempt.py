"""One attempt to write a checkpoint: writes its parts in parallel under grants, then names it in one step."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.transfer.write_grants import EarlierTry
from peacefs.protocol.errors import FileAlreadyExists, PeacefsError
from peacefs.protocol.ids import new_request_id
from peacefs.protocol.limits import fast_lane_bytes_max
from peacefs.protocol.messages import CreateFile
from peacefs.protocol.new_file import NewFile
from peacefs.protocol.values.write_classes import WriteClass
from peacefs.runtime.tracing import operation

from .manifest import (
    MANIFEST,
    Manifest,
    describe,
    directory_name,
    encode,
    unfinished_name,
)
from .pages import Pages, Stop
from .parallel_writer import GrantedParts
from .parts import part_lengths, split

log = logging.getLogger("peacefs.client")


@dataclass(frozen=True)
class CheckpointTask:
    """A checkpoint to write. `replication` None means the cluster's default."""

    root: str
    unit: str
    sequence: int
    pages: Pages
    workers: int
    chunk_bytes: int
    replication: int | None
    #: Small files to add to the parts, by name.
    files: Mapping[str, bytes] = field(default_factory=dict)
    #: Existing files that also belong to this checkpoint: maps their names in it to their present paths.
    references: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return f"{self.root}/{directory_name(self.unit, self.sequence)}"


class CheckpointAttempt:
    """Writes one checkpoint: `run` does the work on its own thread, and any other thread may cancel it.

    The parts are completed once all data is on datanodes, and become visible together when their directory is
    renamed. A failed attempt leaves nothing behind. If the process dies while parts are completed, a hidden
    directory remains; if it dies earlier, nothing does. `PendingCheckpoint` runs it for `IOService`.
    """

    def __init__(self, files: PeaceFileSystem, task: CheckpointTask, asked_s: float | None) -> None:
        """For `asked_s` see `EarlierTry`."""
        self._files = files
        self._task = task
        self._asked_s = asked_s
        self._directory = f"{task.root}/{unfinished_name(task.unit, task.sequence)}"
        self._planned = split(task.pages.length, task.workers, task.chunk_bytes)
        self._manifest = describe(task.unit, task.sequence, part_lengths(self._planned), task.pages.sizes)
        self._stop = Stop()
        self._parts: GrantedParts | None = None

    @property
    def asked_s(self) -> float | None:
        """The time when the checkpoint began to wait. A checkpoint that replaces it inherits this time."""
        return self._parts.grants.asked_s if self._parts is not None else self._asked_s

    @property
    def expected_start_s(self) -> float:
        """The coordinator's latest estimate of the seconds until the next chunk may be written."""
        return self._parts.grants.expected_start_s if self._parts is not None else 0.0

    def give_up(self, reason: PeacefsError) -> None:
        """Make `run` raise `reason` soon, unless everything is published already."""
        self._stop.set(reason)
        if self._parts is not None:
            self._parts.give_up(reason)

    def run(self) -> Manifest:
        """Write and publish the checkpoint, as one request in logs and traces.

        Raises FileAlreadyExists, CheckpointCancelled, NoDatanodes, QuotaExceeded, ...
        """
        with operation("write a checkpoint", {"path": self._task.path}):
            return self._write()

    def _write(self) -> Manifest:
        self._check_new()
        try:
            if self._task.pages.length > fast_lane_bytes_max:
                self._write_granted()
            else:
                self._write_small()
            for name, data in self._task.files.items():
                self._files.write(f"{self._directory}/{name}", data, write_class=WriteClass.BLOCKING.word)
            self._files.write(
                f"{self._directory}/{MANIFEST}", encode(self._manifest), write_class=WriteClass.BLOCKING.word
            )
            for name, path in self._task.references.items():
                self._files.copy(path, f"{self._directory}/{name}")
            self._stop.check()
            self._files.rename(self._directory, self._task.path)
        except BaseException:
            try:
                self._files.delete(self._directory, recursive=True)
            except PeacefsError as fault:
                log.warning("%s is left over and can be deleted: %s", self._directory, fault.message)
            raise
        return self._manifest

    def _check_new(self) -> None:
        """Fail early: the rename would refuse an existing name too, but only after all the work."""
        if self._files.exists(self._task.path):
            raise FileAlreadyExists(f"{self._task.path} exists; a checkpoint is never written over")

    def _write_small(self) -> None:
        """Write parts that are small enough to need no grant."""
        pages = self._task.pages
        for part, chunk in zip(self._manifest.parts, self._planned, strict=True):
            with self._files.open_for_writing(
                f"{self._directory}/{part.name}",
                replication=self._task.replication,
                write_class=WriteClass.BLOCKING.word,
            ) as sink:
                sink.write(pages.bytes_at(chunk.offset, chunk.length))
            pages.written(chunk.offset, chunk.offset + chunk.length)

    # -- under grants ------------------------------------------------------------------------------

    def _write_granted(self) -> None:
        channels = self._files.channels
        created = [channels.calls.create(CreateFile(self._new_file(part.name))) for part in self._manifest.parts]
        self._parts = parts = GrantedParts(
            channels.grants,
            self._task.pages,
            self._planned,
            [each.token for each in created],
            workers=self._task.workers,
            stop=self._stop,
            # Abandon the chunks that CREATE placed, because even the first bytes of each file wait for a grant.
            earlier=EarlierTry(abandoned=[each.allocated.chunk for each in created], asked_s=self._asked_s),
        )
        try:
            # A caller that gave up before `_parts` existed has only set `_stop`.
            self._stop.check()
            with ThreadPoolExecutor(parts.workers, thread_name_prefix="peacefs-checkpoint") as threads:
                workers = [threads.submit(copy_context().run, self._work, parts) for _ in range(parts.workers)]
            for worker in workers:
                worker.result()
            channels.driver.run(parts.complete())
        except BaseException:
            channels.driver.run(parts.abandon())
            raise

    def _work(self, parts: GrantedParts) -> None:
        try:
            self._files.channels.driver.run(parts.work())
        except PeacefsError:
            raise
        except BaseException:
            parts.give_up(PeacefsError("a worker of the checkpoint failed"))
            raise

    def _new_file(self, name: str) -> NewFile:
        return NewFile(
            request_id=new_request_id(),
            path=f"{self._directory}/{name}",
            user=self._files.user,
            replication=self._task.replication or 0,
            block_bytes=self._task.chunk_bytes,
            write_class=WriteClass.BLOCKING.word,
        )
