"""Read grants as the reader of a checkpoint sees them: which chunk is next, and which datanode gives it.

    grants = ReadGrants(name, chunks, at_once=4)
    while (read := (yield from grants.next())) is not None:
        ...                             # read it, on this thread or another; in between: yield from grants.keep()
        grants.ended(read)
    yield from grants.give_back()

The coordinator counts the readers of all clients. Small chunks wait for nobody. Nor does a read fail because
nobody counts: while the coordinator does not answer, this process keeps to the same bound by itself.
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

# A reader says this often that it lives; after the longer silence its grants are others'. It names at most so many
# of its chunks at a time.
read_grant_restate_s: Final = 3.0
# A read does not fail because the coordinator does not answer: it goes on alone after the first, for the second.
read_grant_timeout_s: Final = 8.0
read_grant_alone_s: Final = 10.0


#: For a coordinator that does not hold requests.
_ASK_AGAIN_S = 0.5


@dataclass(frozen=True, slots=True)
class ChunkToRead:
    """The chunk with this number of an opened file; `offset` is where its first byte belongs in the checkpoint."""

    opened: Opened
    number: int
    offset: int

    @property
    def layout(self) -> ChunkLayout:
        """The chunk itself."""
        return self.opened.layout.chunks[self.number]

    @property
    def nodes(self) -> list[NodeId]:
        """The datanodes that hold it, nearest first."""
        return [hop.node for hop in self.layout.replicas]


@dataclass(frozen=True, slots=True)
class ChosenRead:
    """`node` is to be asked first; None where no replica is known, which the reader will say. `turn` is its number
    among the reader's chunks."""

    turn: int
    chunk: ChunkToRead
    node: NodeId | None


class ReadGrants:
    """All chunks of one recovery. Several threads may take from it.

    A replica that fails in the middle of a read is replaced by another at once, whoever reads there.
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
        """`name` tells this reader from any other; `at_once` is how many chunks its threads read together.

        A coordinator that may not hold a question, with `hold_s` 0, is asked again after a while.
        """
        self._name = name
        self._at_once = at_once
        self._hold_s = hold_s
        self._lock = threading.Lock()
        self._chunks = dict(enumerate(chunks))
        self._small = [turn for turn, chunk in self._chunks.items() if chunk.layout.length <= small_bytes_max]
        #: Chunks without a grant; granted, and taken by no thread; being read.
        self._wanted = dict.fromkeys(turn for turn in self._chunks if turn not in set(self._small))
        self._ready: dict[int, NodeId] = {}
        self._reading: dict[int, NodeId] = {}
        self._token = next((chunk.opened.token for chunk in self._chunks.values()), "")
        self._asked_s: float | None = None
        self._stated_s = 0.0
        self._stating = self._statements = 0
        #: True once something has ended since.
        self._unsaid = False
        #: Until then the coordinator, which did not answer, is not asked.
        self._alone_until_s = 0.0
        self._news = fx.Ticket()

    @property
    def chunks(self) -> int:
        """The number of chunks in all."""
        return len(self._chunks)

    @property
    def reads(self) -> dict[int, NodeId]:
        """The chunks that are being read, and where."""
        return dict(self._reading)

    # -- for the threads that read -----------------------------------------------------------------

    def next(self) -> fx.Steps[ChosenRead | None]:
        """Waits for the next chunk; None when there is none left for this thread. Raises AccessDenied,
        BadRequest."""
        while True:
            now_s = yield from fx.now()
            with self._lock:
                if (chosen := self._taken(now_s)) is not None:
                    return chosen
                is_last = not self._wanted
                news, states = self._news, self._may_state(now_s, needs_to=self._unsaid if is_last else None)
            if states:
                # Nothing is waited for by the last word of a thread: only others need what it gives back.
                yield from self._state(now_s, 0.0 if is_last else self._hold_s)
            if is_last:
                return None
            if not states:
                yield from fx.wait(news, timeout_s=read_grant_restate_s)
            elif not self._hold_s and not self._ready:
                yield from fx.sleep(_ASK_AGAIN_S)

    def keep(self) -> fx.Steps[None]:
        """To be called between pieces: says now and then that this reader lives."""
        now_s = yield from fx.now()
        with self._lock:
            is_silent = self._asked_s is not None and now_s - self._stated_s >= read_grant_restate_s
            states = self._may_state(now_s, needs_to=is_silent)
        if states:
            yield from self._state(now_s, 0.0)

    def ended(self, read: ChosenRead) -> None:
        """It was read, or will not be."""
        with self._lock:
            if self._reading.pop(read.turn, None) is not None:
                self._unsaid = True
            self._tell()

    def give_up(self) -> None:
        """Nothing more is chosen."""
        with self._lock:
            self._small.clear()
            self._wanted.clear()
            self._ready.clear()
            self._tell()

    def give_back(self) -> fx.Steps[None]:
        """The last word. Raises nothing: what is not heard is found out in time."""
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
        """Return whether this thread must make a statement.

        It is the only one that does, unless something has ended since the last, which a request that is held does
        not say. `needs_to` None is a thread that has nothing else to do.
        """
        if now_s < self._alone_until_s or needs_to is False or (self._stating and not self._unsaid):
            return False
        self._stating += 1
        return True

    def _state(self, now_s: float, wait_s: float) -> fx.Steps[None]:
        """State what is read and wanted, and take in the grants of the answer."""
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
        """The first chunk with a replica where this process has room, where it has most."""
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
