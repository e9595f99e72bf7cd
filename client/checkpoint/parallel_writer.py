"""Writes the files of one checkpoint with several participants at once, under the grants of one write set."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import islice

from peacefs.client.transfer.chunk_keeper import ChunkKeeper, KeptPackets
from peacefs.client.transfer.chunk_writer import write_chunk
from peacefs.client.transfer.write_grants import EarlierTry, GrantClient, GrantedSet, NextChunk
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.ids import ChunkId, NodeId
from peacefs.protocol.limits import hop_timeout_s as default_hop_timeout_s
from peacefs.protocol.messages import Allocated, Completed, CompleteFile, WrittenChunk
from peacefs.runtime import effects as fx

from .pages import PageChunk, Pages, Stop
from .parts import PlannedChunk


class GrantedParts:
    """The participants of one checkpoint: up to `workers` run `work`; after all succeeded, one runs `complete`.

    As many chunks are requested as there are workers, so that no grant waits for a worker; the size of the rest is
    stated with them. A worker takes any granted chunk.
    """

    def __init__(
        self,
        grant_client: GrantClient,
        pages: Pages,
        planned: Sequence[PlannedChunk],
        tokens: Sequence[str],
        *,
        workers: int,
        stop: Stop,
        earlier: EarlierTry | None = None,
        hop_timeout_s: float = default_hop_timeout_s,
    ) -> None:
        """`tokens` permit to write the parts, one each."""
        self._grant_client = grant_client
        self._pages = pages
        self._planned = planned
        self._tokens = tokens
        self._stop = stop
        self._hop_timeout_s = hop_timeout_s
        self._lock = threading.Lock()
        self._written: dict[PlannedChunk, WrittenChunk] = {}
        self._to_come = iter(range(len(planned)))
        self._keeper = ChunkKeeper(tokens[0])
        self.workers = min(workers, len(planned))
        first = {number: planned[number].length for number in self._next(self.workers)}
        self.grants = GrantedSet(
            grant_client,
            tokens[0],
            first,
            to_come_bytes=pages.length - sum(first.values()),
            earlier=earlier,
            meanwhile=self._keeper.keep,
        )

    def work(self) -> fx.Steps[None]:
        """Write chunks until none is left for this worker. Raises the error that fails the checkpoint."""
        try:
            while (granted := (yield from self.grants.next())) is not None:
                self._stop.check()
                yield from self._write(granted)
        except PeacefsError as error:
            self.give_up(error)
            self._stop.check()

    def give_up(self, reason: PeacefsError) -> None:
        """Make all workers end soon. The first reason is kept."""
        self._stop.set(reason)
        self.grants.refuse(reason)

    def abandon(self) -> fx.Steps[None]:
        """Abandon all chunks; nothing is published. Raises nothing."""
        yield from self.grants.give_back()
        with self._lock:
            written = [chunk.chunk for chunk in self._written.values()]
        yield from self._grant_client.abandon(self._tokens[0], written)

    def complete(self) -> fx.Steps[None]:
        """Publish the files."""
        assert len(self._written) == len(self._planned), "a chunk was not written"
        for part, token in enumerate(self._tokens):
            chunks = [self._written[chunk] for chunk in self._planned if chunk.part == part]
            yield from fx.call(CompleteFile(token, chunks), Completed)

    def _write(self, granted: NextChunk) -> fx.Steps[None]:
        chunk = self._planned[granted.index]

        def again(failed: list[NodeId], abandoned: ChunkId) -> fx.Steps[Allocated]:
            self._keeper.let_go(abandoned)
            allocated = yield from self.grants.again(granted.index, chunk.length, failed, [abandoned])
            self._keeper.hold(allocated.chunk)
            return allocated

        self._keeper.hold(granted.allocated.chunk)
        source = KeptPackets(PageChunk(self._pages, chunk.offset, chunk.length, self._stop), self._keeper)
        written = yield from write_chunk(granted.allocated, source, again, [], hop_timeout_s=self._hop_timeout_s)
        with self._lock:
            self._written[chunk] = written
        self._pages.written(chunk.offset, chunk.offset + chunk.length)
        for number in self._next(1):
            self.grants.want(number, self._planned[number].length)
        self.grants.written(granted.index)

    def _next(self, count: int) -> list[int]:
        with self._lock:
            return list(islice(self._to_come, count))
