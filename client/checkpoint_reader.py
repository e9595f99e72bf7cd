"""Reads a checkpoint's chunks in parallel into one buffer."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from peacefs.protocol import effects as fx
from peacefs.protocol.limits import hop_timeout_s, readers_per_datanode_max
from peacefs.protocol.messages import ChunkLayout, Layout, Opened
from peacefs.protocol.threads import ThreadDriver

from .file_reader import FileReader
from .recovery_reads import ChosenRead, ChunkToRead, RecoveryReads


class CheckpointReader:
    """Reads once. `parts` lie one after the other in `target`, which is as long as all of them."""

    def __init__(self, driver: ThreadDriver, parts: Sequence[Opened], target: memoryview) -> None:
        self._driver = driver
        self._target = target
        self._reads = RecoveryReads(_chunks(parts), readers_per_datanode_max)
        self._changed = threading.Condition()

    def run(self, workers: int) -> None:
        """Raises ChunkUnavailable, FileNotFound for a checkpoint that was deleted meanwhile, ..."""
        count = max(1, min(workers, self._reads.waiting))
        with ThreadPoolExecutor(count, thread_name_prefix="peacefs-recovery") as threads:
            readers = [threads.submit(self._work) for _ in range(count)]
        for reader in readers:
            reader.result()

    def _work(self) -> None:
        while (read := self._next()) is not None:
            try:
                self._driver.run(self._read(read.chunk, read.node))
            except BaseException:
                with self._changed:
                    self._reads.give_up()
                raise
            finally:
                with self._changed:
                    self._reads.ended(read)
                    self._changed.notify_all()

    def _next(self) -> ChosenRead | None:
        with self._changed:
            while self._reads.waiting:
                if (read := self._reads.choose()) is not None:
                    return read
                # Somebody reads, for all datanodes with a replica are busy, and ends by the deadlines of its hops.
                self._changed.wait(hop_timeout_s)
            return None

    def _read(self, chunk: ChunkToRead, first: str | None) -> fx.Steps[None]:
        layout = chunk.opened.layout
        begin = sum(each.length for each in layout.chunks[: chunk.number])
        wanted = layout.chunks[chunk.number]
        chunks = [*layout.chunks]
        chunks[chunk.number] = _asking_first(wanted, first)
        reader = FileReader(chunk.opened.token, Layout(layout.length, chunks), begin, wanted.length)
        room = self._target[chunk.offset :]
        while (piece := (yield from reader.next_piece(room))) is not None:
            if piece.obj is not room.obj:
                room[: len(piece)] = piece
            room = room[len(piece) :]


def _chunks(parts: Sequence[Opened]) -> list[ChunkToRead]:
    """Those of all parts in turn, so that workers read from many files, and datanodes, at once."""
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
