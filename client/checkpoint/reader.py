"""Reads the chunks of a checkpoint in parallel into one buffer."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from uuid import uuid4

import msgspec

from peacefs.client.transfer.file_reader import FileReader
from peacefs.protocol.limits import fast_lane_bytes_max, grant_hold_s
from peacefs.protocol.limits import hop_timeout_s as default_hop_timeout_s
from peacefs.protocol.messages import ChunkLayout, Layout, Opened
from peacefs.runtime import effects as fx
from peacefs.runtime.thread_driver import ThreadDriver
from peacefs.runtime.tracing import operation

from .read_grants import ChosenRead, ChunkToRead, ReadGrants


class CheckpointReader:
    """Reads one checkpoint, once. `parts` follow each other in `target`, which has their total length."""

    def __init__(self, driver: ThreadDriver, parts: Sequence[Opened], target: memoryview) -> None:
        self._driver = driver
        self._parts = parts
        self._target = target

    def run(self, workers: int) -> None:
        """Read all parts. Raises ChunkUnavailable, FileNotFound if the checkpoint was deleted meanwhile, ..."""
        reading = ParallelReading(uuid4().hex, self._parts, self._target, workers)
        with (
            operation("read a checkpoint"),
            ThreadPoolExecutor(reading.workers, thread_name_prefix="peacefs-recovery") as threads,
        ):
            readers = [
                threads.submit(copy_context().run, self._driver.run, reading.work())
                for _ in range(reading.workers)
            ]
        self._driver.run(reading.grants.give_back())
        for reader in readers:
            reader.result()


class ParallelReading:
    """The participants of one read: `workers` run `work`; after all ended, one runs `grants.give_back`."""

    def __init__(
        self,
        name: str,
        parts: Sequence[Opened],
        target: memoryview,
        workers: int,
        *,
        small_bytes_max: int = fast_lane_bytes_max,
        hold_s: float = grant_hold_s,
        hop_timeout_s: float = default_hop_timeout_s,
    ) -> None:
        """For `name`, `small_bytes_max` and `hold_s` see `ReadGrants`."""
        chunks = _chunks(parts)
        self.workers = max(1, min(workers, len(chunks)))
        self.grants = ReadGrants(name, chunks, self.workers, small_bytes_max=small_bytes_max, hold_s=hold_s)
        self._target = target
        self._hop_timeout_s = hop_timeout_s

    def work(self) -> fx.Steps[None]:
        """Read chunks until none is left for this worker. Raises the error that fails the read."""
        try:
            while (read := (yield from self.grants.next())) is not None:
                try:
                    yield from self._read(read)
                finally:
                    self.grants.ended(read)
        except BaseException:
            self.grants.give_up()
            raise

    def _read(self, read: ChosenRead) -> fx.Steps[None]:
        chunk = read.chunk
        layout, wanted = chunk.opened.layout, chunk.layout
        begin = sum(each.length for each in layout.chunks[: chunk.number])
        chunks = [*layout.chunks]
        chunks[chunk.number] = _asking_first(wanted, read.node)
        reader = FileReader(
            chunk.opened.token,
            Layout(layout.length, chunks),
            begin,
            wanted.length,
            hop_timeout_s=self._hop_timeout_s,
        )
        room = self._target[chunk.offset :]
        while (piece := (yield from reader.next_piece(room))) is not None:
            if piece.obj is not room.obj:
                room[: len(piece)] = piece
            room = room[len(piece) :]
            yield from self.grants.keep()


def _chunks(parts: Sequence[Opened]) -> list[ChunkToRead]:
    """Return all first chunks of the parts, then all second ones, ...: workers then use many datanodes at once."""
    found: list[tuple[int, ChunkToRead]] = []
    offset = 0
    for part in parts:
        for number, chunk in enumerate(part.layout.chunks):
            found.append((number, ChunkToRead(part, number, offset)))
            offset += chunk.length
    return [chunk for _, chunk in sorted(found, key=lambda each: each[0])]


def _asking_first(chunk: ChunkLayout, node: str | None) -> ChunkLayout:
    replicas = sorted(chunk.replicas, key=lambda hop: hop.node != node)
    return msgspec.structs.replace(chunk, replicas=replicas)
