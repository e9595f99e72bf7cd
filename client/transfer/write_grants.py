"""Grants for a writer: it states what it will write, and learns when it may start each chunk.

    grants = GrantedSet(grant_client, token, {0: 64 << 20, 1: 64 << 20})
    while (granted := (yield from grants.next())) is not None:
        ...                                             # write chunk granted.index, on this thread or another
        grants.written(granted.index)

If a pipeline breaks, `again` asks for another grant. `give_back` returns the grants of chunks that were not
written.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from peacefs.client.limits import client_backoff_max_s
from peacefs.protocol.errors import Overloaded, PeacefsError, ServiceUnready, from_wire
from peacefs.protocol.ids import ChunkId, NodeId
from peacefs.protocol.limits import grant_hold_s, last_word_timeout_s
from peacefs.protocol.messages import (
    Allocated,
    Granted,
    GrantedChunk,
    GrantRefused,
    Scheduled,
    StateWriteSet,
    StreamUnderWay,
)
from peacefs.runtime import effects as fx

# Interval at which a waiting writer restates its set. After a longer silence it loses its place in the queue.
write_set_restate_s: Final = 3.0
# Maximum total time that a writer waits for a grant.
grant_timeout_s: Final = 1800.0
# Maximum number of chunks that one call abandons.
abandoned_chunks_per_call: Final = 1000


class GrantClient:
    """Receives the grants that the coordinator sends, for all write sets of a process. Thread-safe.

    `name` is unique to this process. If `pushed`, the coordinator can send grants to it. Otherwise each request
    asks for them, and the coordinator holds it for a while.
    """

    def __init__(self, name: str, *, pushed: bool) -> None:
        self._name = name
        self._numbers = itertools.count(1)
        self._sets: dict[str, GrantedSet] = {}
        self.pushed = pushed

    def enrol(self, grants: GrantedSet) -> str:
        """Register a set; return the name by which the coordinator will know it."""
        name = f"{self._name}/{next(self._numbers)}"
        self._sets[name] = grants
        return name

    def abandon(self, token: str, chunks: Sequence[ChunkId]) -> fx.Steps[None]:
        """Have the chunks that were written for the file of `token` deleted at once.

        Raises nothing: if a call is lost, the chunks are deleted when the write token has expired.
        """
        name = f"{self._name}/{next(self._numbers)}"
        for at in range(0, len(chunks), abandoned_chunks_per_call):
            message = StateWriteSet(token, name, [], abandoned=list(chunks[at : at + abandoned_chunks_per_call]))
            with contextlib.suppress(PeacefsError):
                yield from fx.call(message, Scheduled, timeout_s=last_word_timeout_s)

    def forget(self, name: str) -> None:
        """Forget a set that has no more chunks to wait for."""
        self._sets.pop(name, None)

    def deliver(self, message: Granted | GrantRefused) -> None:
        """Receive a message on the thread that listens to the coordinator. Ignores unknown sets."""
        grants = self._sets.get(message.write_set)
        if grants is None:
            return
        if isinstance(message, Granted):
            grants.put([message.grant])
        else:
            grants.refuse(from_wire(message.code, message.message))


@dataclass(frozen=True, slots=True)
class NextChunk:
    """A chunk, by the writer's own number, and the pipeline that it may be written through now."""

    index: int
    allocated: Allocated


@dataclass(frozen=True, slots=True)
class EarlierTry:
    """The remains of an earlier attempt to write the same data."""

    #: The failed nodes, which get no chunks.
    exclude: Sequence[NodeId] = ()
    #: The chunks that were placed and will not be written.
    abandoned: Sequence[ChunkId] = ()
    #: The time when the writer began to wait, by the driver's clock; None if it has not waited.
    asked_s: float | None = None


class GrantedSet:
    """One write set of a writer: the lengths of its chunks, by the writer's own numbers. Thread-safe.

    Each chunk is wanted, ready, in use or written, and is given to one thread at a time.
    """

    def __init__(
        self,
        grant_client: GrantClient,
        token: str,
        chunks: Mapping[int, int],
        *,
        written_bytes: int = 0,
        to_come_bytes: int = -1,
        earlier: EarlierTry | None = None,
        meanwhile: Callable[[float], fx.Steps[None]] | None = None,
    ) -> None:
        """`written_bytes` is the present length of the file of `token`.

        `to_come_bytes`, if known, is the size of all chunks that `want` will add. A waiting thread calls
        `meanwhile` regularly with the number of seconds that it may take.
        """
        earlier = earlier or EarlierTry()
        self._grant_client = grant_client
        self._token = token
        self._written_bytes = written_bytes
        self._lock = threading.Lock()
        #: Chunks without a grant; grants that no thread has taken; grants in use.
        self._wanted = dict(chunks)
        self._ready: dict[int, Allocated] = {}
        self._in_use: dict[int, Allocated] = {}
        #: Chunks that a thread has requested again; only that thread may take them.
        self._claimed: set[int] = set()
        self._failed = list(earlier.exclude)
        self._abandoned = list(earlier.abandoned)
        self._to_come_bytes = to_come_bytes
        self._refusal: PeacefsError | None = None
        self._news = fx.Ticket()
        self._asked_s = earlier.asked_s
        self._meanwhile = meanwhile
        self._stated_s: float | None = None
        self._stating = False
        self.expected_start_s = 0.0
        self._name = grant_client.enrol(self)

    # -- the writer's side -------------------------------------------------------------------------

    def next(self) -> fx.Steps[NextChunk | None]:
        """Wait for the next grant; return None if no chunk is left to wait for.

        Raises the coordinator's refusal, and Overloaded after `grant_timeout_s`.
        """
        return (yield from self._take(None))

    def again(
        self, index: int, chunk_bytes: int, failed: Sequence[NodeId], abandoned: Sequence[ChunkId]
    ) -> fx.Steps[Allocated]:
        """Wait for another grant for a chunk, in place of the `abandoned` ones, without the `failed` nodes."""
        with self._lock:
            self._in_use.pop(index, None)
            self._wanted[index] = chunk_bytes
            self._claimed.add(index)
            self._failed += [node for node in failed if node not in self._failed]
            self._abandoned += abandoned
            self._stated_s = None
        granted = yield from self._take(index)
        assert granted is not None
        return granted.allocated

    @property
    def asked_s(self) -> float | None:
        """The time when the set was first stated, by the driver's clock; None before that."""
        return self._asked_s

    def want(self, index: int, chunk_bytes: int) -> None:
        """Request the next expected chunk."""
        with self._lock:
            self._wanted[index] = chunk_bytes
            self._to_come_bytes -= chunk_bytes
            self._stated_s = None
            self._tell()

    def written(self, index: int) -> None:
        """Record that a chunk is on its datanodes."""
        with self._lock:
            self._in_use.pop(index, None)
            done = not (self._wanted or self._ready or self._in_use)
        if done:
            self._grant_client.forget(self._name)

    def give_back(self) -> fx.Steps[None]:
        """Abandon everything that is not written. Raises nothing: the coordinator notices a lost call in time."""
        with self._lock:
            unfinished = bool(self._wanted or self._ready or self._in_use)
            self._wanted.clear()
            held = [each.chunk for each in (*self._ready.values(), *self._in_use.values())]
        self._grant_client.forget(self._name)
        if unfinished and self._asked_s is not None:
            message = StateWriteSet(self._token, self._name, [], abandoned=[*self._abandoned, *held])
            with contextlib.suppress(PeacefsError):
                yield from fx.call(message, Scheduled, timeout_s=last_word_timeout_s)

    # -- messages from the coordinator -------------------------------------------------------------

    def put(self, grants: Sequence[GrantedChunk]) -> None:
        """Add grants. A grant may arrive more than once."""
        with self._lock:
            for grant in grants:
                if grant.allocated.chunk in self._abandoned:
                    continue  # late or repeated
                if self._wanted.pop(grant.index, None) is not None:
                    self._ready[grant.index] = grant.allocated
            self._tell()

    def refuse(self, error: PeacefsError) -> None:
        """Refuse the chunks that still wait: they will never be granted."""
        with self._lock:
            self._refusal = error
            self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, fx.Ticket()
        news.fire()

    # -- waiting -----------------------------------------------------------------------------------

    def _take(self, index: int | None) -> fx.Steps[NextChunk | None]:
        started_s = now_s = yield from fx.now()
        while now_s - started_s < grant_timeout_s:
            with self._lock:
                news = self._news
                if (taken := self._taken(index)) is not None:
                    return taken
                if self._refusal is not None:
                    raise self._refusal
                if index is None and not self._wanted:
                    return None
                is_mine = not self._stating and self._is_due(now_s)
                self._stating = self._stating or is_mine
            if is_mine:
                yield from self._state(now_s)
            elif self._meanwhile is not None:
                yield from self._meanwhile(write_set_restate_s)
            if not is_mine:
                yield from fx.wait(news, timeout_s=write_set_restate_s)
            now_s = yield from fx.now()
        raise Overloaded(f"no chunk was granted within {grant_timeout_s:g} s; try again later")

    def _taken(self, index: int | None) -> NextChunk | None:
        free = (each for each in self._ready if each not in self._claimed)
        found = next(free, None) if index is None else index
        if found is None or found not in self._ready:
            return None
        self._claimed.discard(found)
        allocated = self._in_use[found] = self._ready.pop(found)
        return NextChunk(found, allocated)

    def _is_due(self, now_s: float) -> bool:
        if self._stated_s is None or not self._grant_client.pushed:
            return True
        return now_s - self._stated_s >= write_set_restate_s

    def _state(self, now_s: float) -> fx.Steps[None]:
        """State what is wanted, and add the grants of the answer."""
        try:
            scheduled = yield from fx.call(self._statement(now_s), Scheduled)
        except ServiceUnready:
            # The queue is full, or the coordinator has just started: wait here instead.
            yield from fx.sleep(client_backoff_max_s)
        else:
            self.expected_start_s = scheduled.expected_start_s
            self.put(scheduled.grants)
        finally:
            with self._lock:
                self._stating = False

    def _statement(self, now_s: float) -> StateWriteSet:
        with self._lock:
            if self._asked_s is None:
                self._asked_s = now_s
            self._stated_s = now_s
            return StateWriteSet(
                self._token,
                self._name,
                sorted(self._wanted.items()),
                exclude=list(self._failed),
                abandoned=list(self._abandoned),
                holding=[
                    StreamUnderWay(each.chunk, each.version, [hop.node for hop in each.pipeline])
                    for each in (*self._in_use.values(), *self._ready.values())
                ],
                waited_s=now_s - self._asked_s,
                wait_s=0.0 if self._grant_client.pushed else grant_hold_s,
                written_bytes=self._written_bytes,
                to_come_bytes=self._to_come_bytes,
            )
