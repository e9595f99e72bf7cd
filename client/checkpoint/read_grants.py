"""Read grants for the reader of a checkpoint: which chunk to read next, and from which datanode.

    grants = ReadGrants(name, chunks, at_once=4)
    while (read := (yield from grants.next())) is not None:
        ...                             # read it, on this thread or another; in between: yield from grants.keep()
        grants.ended(read)
    yield from grants.give_back()

The coordinator limits the readers of all clients at each datanode. Small chunks need no grant. While the
coordinator does not answer, reads continue, and this process applies the same limit to itself.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from peacefs.protocol.errors import PeacefsError, PeerError, ServiceUnready
from peacefs.protocol.ids import NodeId
from peacefs.protocol.limits import (
    fast_lane_bytes_max,
    grant_hold_s,
    last_word_timeout_s,
    readers_per_datanode_max,
    reads_stated_max,
)
from peacefs.protocol.messages import ChunkLayout, Opened, ReadsScheduled, StateReads
from peacefs.runtime import effects as fx

# Interval at which a reader restates its reads. After a longer silence, others get its grants.
read_grant_restate_s: Final = 3.0
# If the coordinator does not answer within the first time, the reader continues without it for the second.
read_grant_timeout_s: Final = 8.0
read_grant_alone_s: Final = 10.0


#: Pause before asking again, if the coordinator does not hold requests.
_ASK_AGAIN_S = 0.5


@dataclass(frozen=True, slots=True)
class ChunkToRead:
    """Chunk `number` of an opened file. `offset` is the position of its first byte in the checkpoint."""

    opened: Opened
    number: int
    offset: int

    @property
    def layout(self) -> ChunkLayout:
        return self.opened.layout.chunks[self.number]

    @property
    def nodes(self) -> list[NodeId]:
        """The datanodes that hold the chunk, nearest first."""
        return [hop.node for hop in self.layout.replicas]


@dataclass(frozen=True, slots=True)
class ChosenRead:
    """A chunk to read now, from `node` first. `node` is None if no replica is known; then the read will fail.

    `turn` is the chunk's number in `ReadGrants`.
    """

    turn: int
    chunk: ChunkToRead
    node: NodeId | None


class ReadGrants:
    """All chunks of one recovery. Hands each to one thread, with the datanode to ask first. Thread-safe.

    `ParallelReading` uses it. If a replica fails during a read, the reader continues at another replica at once,
    without a grant.
    """

    def __init__(
        self,
        name: str,
        chunks: Iterable[ChunkToRead],
        at_once: int,
        *,
        small_bytes_max: int = fast_lane_bytes_max,
        hold_s: float = grant_hold_s,
    ) -> None:
        """`name` is unique to this reader; `at_once` is the number of chunks that its threads read together.

        The coordinator may hold a request for `hold_s`. If that is 0, it is asked again after a pause.
        """
        self._name = name
        self._at_once = at_once
        self._hold_s = hold_s
        self._lock = threading.Lock()
        self._chunks = dict(enumerate(chunks))
        self._small = [turn for turn, chunk in self._chunks.items() if chunk.layout.length <= small_bytes_max]
        #: Chunks without a grant; chunks with a grant that no thread has taken; chunks being read.
        self._wanted = dict.fromkeys(turn for turn in self._chunks if turn not in set(self._small))
        self._ready: dict[int, NodeId] = {}
        self._reading: dict[int, NodeId] = {}
        self._token = next((chunk.opened.token for chunk in self._chunks.values()), "")
        self._asked_s: float | None = None
        self._stated_s = 0.0
        self._stating = self._statements = 0
        #: True if a read has ended since the last statement.
        self._unsaid = False
        #: Until this time the coordinator is not asked, because it did not answer.
        self._alone_until_s = 0.0
        self._news = fx.Ticket()

    @property
    def chunks(self) -> int:

        return len(self._chunks)

    @property
    def reads(self) -> dict[int, NodeId]:
        """The datanode of each chunk that is being read."""
        return dict(self._reading)

    # -- for the threads that read -----------------------------------------------------------------

    def next(self) -> fx.Steps[ChosenRead | None]:
        """Wait for the next chunk; None if none is left for this thread. Raises AccessDenied, BadRequest."""
        while True:
            now_s = yield from fx.now()
            with self._lock:
                if (chosen := self._taken(now_s)) is not None:
                    return chosen
                is_last = not self._wanted
                news, states = self._news, self._may_state(now_s, needs_to=self._unsaid if is_last else None)
            if states:
                # The last statement of a thread need not be answered with grants: it only releases grants for
                # others.
                yield from self._state(now_s, 0.0 if is_last else self._hold_s)
            if is_last:
                return None
            if not states:
                yield from fx.wait(news, timeout_s=read_grant_restate_s)
            elif not self._hold_s and not self._ready:
                yield from fx.sleep(_ASK_AGAIN_S)

    def keep(self) -> fx.Steps[None]:
        """Tell the coordinator now and then that this reader is alive. Call this between pieces."""
        now_s = yield from fx.now()
        with self._lock:
            is_silent = self._asked_s is not None and now_s - self._stated_s >= read_grant_restate_s
            states = self._may_state(now_s, needs_to=is_silent)
        if states:
            yield from self._state(now_s, 0.0)

    def ended(self, read: ChosenRead) -> None:
        """Mark a chunk as read, or as given up."""
        with self._lock:
            if self._reading.pop(read.turn, None) is not None:
                self._unsaid = True
            self._tell()

    def give_up(self) -> None:
        """Assign no more chunks."""
        with self._lock:
            self._small.clear()
            self._wanted.clear()
            self._ready.clear()
            self._tell()

    def give_back(self) -> fx.Steps[None]:
        """Release all grants. Raises nothing: if the call is lost, the coordinator notices the silence."""
        if self._asked_s is not None:
            with contextlib.suppress(PeacefsError):
                self._statements += 1
                last = StateReads(self._token, self._name, self._statements, [], at_once=self._at_once)
                yield from fx.call(last, ReadsScheduled, timeout_s=last_word_timeout_s)

    # ----------------------------------------------------------------------------------------------

    def _taken(self, now_s: float) -> ChosenRead | None:
        if self._small:
            turn = self._small.pop(0)
            chunk = self._chunks[turn]
            return ChosenRead(turn, chunk, next(iter(chunk.nodes), None))
        if not self._ready and now_s < self._alone_until_s:
            self._choose_alone()
        for turn, node in self._ready.items():
            del self._ready[turn]
            self._reading[turn] = node
            return ChosenRead(turn, self._chunks[turn], node or None)
        return None

    def _may_state(self, now_s: float, *, needs_to: bool | None) -> bool:
        """Return whether this thread should make a statement.

        Usually one thread does so at a time. But the coordinator may hold that request. If a read has ended since
        it was sent, a second thread may report that. `needs_to` None means a thread with nothing else to do.
        """
        if now_s < self._alone_until_s or needs_to is False or (self._stating and not self._unsaid):
            return False
        self._stating += 1
        return True

    def _state(self, now_s: float, wait_s: float) -> fx.Steps[None]:
        """Tell the coordinator what is being read and wanted; add the grants of the answer."""
        answer = ReadsScheduled([])
        try:
            statement = self._statement(now_s, wait_s)
            answer = yield from fx.call(statement, ReadsScheduled, timeout_s=read_grant_timeout_s)
        except (PeerError, ServiceUnready):
            self._alone_until_s = now_s + read_grant_alone_s
        finally:
            with self._lock:
                self._stating -= 1
                for turn, node in answer.grants:
                    if turn in self._wanted:
                        del self._wanted[turn]
                        self._ready[turn] = node
                self._tell()

    def _statement(self, now_s: float, wait_s: float) -> StateReads:
        with self._lock:
            if self._asked_s is None:
                self._asked_s = now_s
            self._stated_s, self._unsaid = now_s, False
            self._statements += 1
            holding = [*self._reading.items(), *self._ready.items()]
            wanted = islice(self._wanted, reads_stated_max - len(holding))
            return StateReads(
                self._token,
                self._name,
                self._statements,
                [(turn, self._chunks[turn].nodes) for turn in wanted],
                holding=holding,
                at_once=self._at_once,
                waited_s=now_s - self._asked_s,
                wait_s=wait_s,
            )

    def _choose_alone(self) -> None:
        """Grant the first chunk with a replica at a datanode below the limit; prefer the least used datanode."""
        here = Counter([*self._reading.values(), *self._ready.values()])
        for turn in self._wanted:
            nodes = self._chunks[turn].nodes
            free = [node for node in nodes if here[node] < readers_per_datanode_max]
            if free or not nodes:
                del self._wanted[turn]
                self._ready[turn] = min(free, key=lambda each: here[each], default="")
                return

    def _tell(self) -> None:
        news, self._news = self._news, fx.Ticket()
        news.fire()
