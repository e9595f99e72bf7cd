"""One attempt to write a checkpoint: its parts in parallel under grants, then its name, in one step."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

from peacefs.protocol import effects as fx
from peacefs.protocol.errors import FileAlreadyExists, PeacefsError
from peacefs.protocol.limits import fast_lane_bytes_max
from peacefs.protocol.messages import Allocated, Completed, CompleteFile, Created, CreateFile

from .checkpoint_manifest import MANIFEST, Manifest, describe, directory_name, encode, unfinished_name
from .checkpoint_parts import PlannedChunk, WrittenPart, part_lengths, split
from .chunk_writer import write_chunk
from .coordinator_api import new_request_id
from .filesystem import PeaceFileSystem
from .grants import GrantedSet, NextChunk
from .pages import PageChunk, Pages, Stop


@dataclass(frozen=True)
class CheckpointTask:
    """What is to be written, and how. `replication` None means the cluster's default."""

    root: str
    unit: str
    sequence: int
    pages: Pages
    workers: int
    chunk_bytes: int
    replication: int | None

    @property
    def path(self) -> str:
        """Where the checkpoint will be."""
        return f"{self.root}/{directory_name(self.unit, self.sequence)}"


class CheckpointAttempt:
    """Written by `run`, on a thread of its own; may be given up from any other.

    The parts are completed when all their data is on datanodes, and become visible together by the renaming of
    their directory. An attempt that fails leaves nothing; one whose process dies leaves nothing before the last
    moments, and a hidden directory then.
    """

    def __init__(self, files: PeaceFileSystem, task: CheckpointTask, asked_s: float | None) -> None:
        """`asked_s` as in `GrantedSet`."""
        self._files = files
        self._task = task
        self._asked_s = asked_s
        self._directory = f"{task.root}/{unfinished_name(task.unit, task.sequence)}"
        self._planned = split(task.pages.length, task.workers, task.chunk_bytes)
        self._manifest = describe(task.unit, task.sequence, part_lengths(self._planned), task.pages.sizes)
        self._stop = Stop()
        self._lock = threading.Lock()
        self._parts: list[WrittenPart] = []
        self._to_come = iter(range(len(self._planned)))
        self._grants: GrantedSet | None = None

    @property
    def asked_s(self) -> float | None:
        """Since when the checkpoint waits, for one that takes its place."""
        return self._grants.asked_s if self._grants is not None else self._asked_s

    @property
    def expected_start_s(self) -> float:
        """In how many seconds the next chunk may expect its turn, as the coordinator said last."""
        return self._grants.expected_start_s if self._grants is not None else 0.0

    def give_up(self, reason: PeacefsError) -> None:
        """`run` raises it soon, unless all was published already."""
        self._stop.set(reason)
        if self._grants is not None:
            self._grants.refuse(reason)

    def run(self) -> Manifest:
        """Raises FileAlreadyExists, CheckpointCancelled, NoDatanodes, QuotaExceeded, ..."""
        self._check_new()
        try:
            if self._task.pages.length > fast_lane_bytes_max:
                self._write_granted()
            else:
                self._write_small()
            self._files.write(f"{self._directory}/{MANIFEST}", encode(self._manifest))
            self._stop.check()
            self._files.rename(self._directory, self._task.path)
        except BaseException:
            with contextlib.suppress(PeacefsError):
                self._files.delete(self._directory, recursive=True)
            raise
        return self._manifest

    def _check_new(self) -> None:
        """The renaming would refuse it too, but after all the work."""
        if self._files.exists(self._task.path):
            raise FileAlreadyExists(f"{self._task.path} exists; a checkpoint is never written over")

    def _write_small(self) -> None:
        """What fits the fast lane waits for nobody."""
        pages = self._task.pages
        for part, chunk in zip(self._manifest.parts, self._planned, strict=True):
            with self._files.open_for_writing(
                f"{self._directory}/{part.name}", replication=self._task.replication
            ) as sink:
                sink.write(pages.bytes_at(chunk.offset, chunk.length))

    # -- under grants ------------------------------------------------------------------------------

    def _write_granted(self) -> None:
        channels = self._files.channels
        created = [channels.calls.create(self._wanted(part.name)) for part in self._manifest.parts]
        self._parts = [WrittenPart(each.token) for each in created]
        try:
            self._grants = self._state(created)
            # Who gave up before the set was there has told nobody else.
            self._stop.check()
            self._run_workers()
        except BaseException as error:
            self._stop.set(PeacefsError(f"the checkpoint failed: {error}"))
            if self._grants is not None:
                channels.driver.run(self._grants.give_back())
            raise
        for part in self._parts:
            channels.driver.run(_complete(part))

    def _wanted(self, name: str) -> CreateFile:
        return CreateFile(
            request_id=new_request_id(),
            path=f"{self._directory}/{name}",
            user=self._files.user,
            overwrite=False,
            create_parent=True,
            replication=self._task.replication or 0,
            block_bytes=self._task.chunk_bytes,
            permission=0o644,
        )

    def _state(self, created: Sequence[Created]) -> GrantedSet:
        """As many chunks as there are workers, so that no grant waits for one, and how much comes after them.

        What each file got for its first bytes is given back: those wait for their grant too.
        """
        first = {number: self._planned[number].length for number in self._next(self._task.workers)}
        return GrantedSet(
            self._files.channels.grants,
            self._parts[0].token,
            first,
            abandoned=[each.allocated.chunk for each in created],
            to_come_bytes=self._task.pages.length - sum(first.values()),
            asked_s=self._asked_s,
        )

    def _next(self, count: int) -> list[int]:
        with self._lock:
            return list(islice(self._to_come, count))

    def _run_workers(self) -> None:
        count = min(self._task.workers, len(self._planned))
        with ThreadPoolExecutor(count, thread_name_prefix="peacefs-checkpoint") as threads:
            workers = [threads.submit(self._work) for _ in range(count)]
        self._stop.check()
        for worker in workers:
            worker.result()
        assert sum(len(part.chunks) for part in self._parts) == len(self._planned), "a chunk was not written"

    def _work(self) -> None:
        assert self._grants is not None
        try:
            self._files.channels.driver.run(self._write_chunks(self._grants))
        except PeacefsError as error:
            self.give_up(error)
        except BaseException:
            self.give_up(PeacefsError("a worker of the checkpoint failed"))
            raise

    def _write_chunks(self, grants: GrantedSet) -> fx.Steps[None]:
        while (granted := (yield from grants.next())) is not None:
            self._stop.check()
            yield from self._write_chunk(grants, granted)

    def _write_chunk(self, grants: GrantedSet, granted: NextChunk) -> fx.Steps[None]:
        chunk: PlannedChunk = self._planned[granted.index]

        def again(failed: list[str], abandoned: int) -> fx.Steps[Allocated]:
            return (yield from grants.again(granted.index, chunk.length, failed, [abandoned]))

        source = PageChunk(self._task.pages, chunk.offset, chunk.length, self._stop)
        written = yield from write_chunk(granted.allocated, source, again, [])
        with self._lock:
            self._parts[chunk.part].chunks[chunk.place] = written
        for number in self._next(1):
            grants.want(number, self._planned[number].length)
        grants.written(granted.index)


def _complete(part: WrittenPart) -> fx.Steps[None]:
    yield from fx.call(CompleteFile(part.token, part.in_order()), Completed)
