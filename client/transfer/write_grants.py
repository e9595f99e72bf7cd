"""Grants as a writer sees them: it states what it has to write, and is told when each chunk may start.

    grants = GrantedSet(grant_client, token, {0: 64 << 20, 1: 64 << 20})
    while (granted := (yield from grants.next())) is not None:
        ...                                             # write chunk granted.index, on this thread or another
        grants.written(granted.index)

A chunk whose pipeline broke is asked for `again`; what is not written after all is given back by `give_back`.
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

# A writer that waits for a grant restates its set so often; after the longer silence it loses its place in the
# queue.
write_set_restate_s: Final = 3.0
# The total time for which a writer waits for a grant.
grant_timeout_s: Final = 1800.0
# A writer abandons so many chunks with one call, of a file that it gives up.
abandoned_chunks_per_call: Final = 1000


class GrantClient:
    """Receive the grants that the coordinator pushes, for all write sets of a process. Thread-safe.

    `name` tells this process from any other. With `pushed` the coordinator can reach it; else it is asked, and
    holds the question for a moment.
    """

    def __init__(self, name: str, *, pushed: bool) -> None:
        self._name = name
        self._numbers = itertools.count(1)
        self._sets: dict[str, GrantedSet] = {}
        self.pushed = pushed

    def enrol(self, grants: GrantedSet) -> str:
        """The name by which the coordinator knows the set."""
        name = f"{self._name}/{next(self._numbers)}"
        self._sets[name] = grants
        return name

    def abandon(self, token: str, chunks: Sequence[ChunkId]) -> fx.Steps[None]:
        """Abandon chunks that were written for the file of `token`: they are deleted at once.

        Raises nothing: what is not heard goes when the token to write it has expired.
        """
        name = f"{self._name}/{next(self._numbers)}"
        for at in range(0, len(chunks), abandoned_chunks_per_call):
            message = StateWriteSet(token, name, [], abandoned=list(chunks[at : at + abandoned_chunks_per_call]))
            with contextlib.suppress(PeacefsError):
                yield from fx.call(message, Scheduled, timeout_s=last_word_timeout_s)

    def forget(self, name: str) -> None:
        """Nobody waits for the set any more."""
        self._sets.pop(name, None)

    def deliver(self, message: Granted | GrantRefused) -> None:
        """From the thread that listens to the coordinator. What nobody waits for is passed over."""
        grants = self._sets.get(message.write_set)
        if grants is None:
            return
        if isinstance(message, Granted):
            grants.put([message.grant])
        else:
            grants.refuse(from_wire(message.code, message.message))


@dataclass(frozen=True, slots=True)
class NextChunk:
    """A chunk, by the writer's own number, and where it may be written now."""

    index: int
    allocated: Allocated


@dataclass(frozen=True, slots=True)
class EarlierTry:
    """What is left of an earlier try to write the same data."""

    #: The nodes that failed: nothing goes to them.
    exclude: Sequence[NodeId] = ()
    #: The chunks that were placed and will not be written.
    abandoned: Sequence[ChunkId] = ()
    #: Since when the writer waits, by the clock of the driver; None if it has not waited.
    asked_s: float | None = None


class GrantedSet:
    """One write set of a writer: chunks, as bytes by its own numbers. Several threads may take from it.

    Each chunk is wanted, ready, in use, or written, and is given to one thread at a time.
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
        """`written_bytes` is what the file of `token` has already.

        `to_come_bytes`, where it is known, is what `want` will add. `meanwhile` is done now and then by who waits,
        within the seconds that it is given.
        """
        earlier = earlier or EarlierTry()
        self._grant_client = grant_client
        self._token = token
        self._written_bytes = written_bytes
        self._lock = threading.Lock()
        #: Chunks without a grant; grants that nobody has taken; grants that are being used.
        self._wanted = dict(chunks)
        self._ready: dict[int, Allocated] = {}
        self._in_use: dict[int, Allocated] = {}
        #: Chunks that somebody asks for again, which are his.
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
        """Waits for the next grant; None when there is nothing left to wait for.

        Raises what the coordinator refuses it with, and Overloaded after `grant_timeout_s`.
        """
        return (yield from self._take(None))

    def again(
        self, index: int, chunk_bytes: int, failed: Sequence[NodeId], abandoned: Sequence[ChunkId]
    ) -> fx.Steps[Allocated]:
        """Waits for another grant for a chunk, in place of what is `abandoned`; without the `failed` nodes."""
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
        """When the set was stated first, by the clock of the driver; None while it was not."""
        return self._asked_s

    def want(self, index: int, chunk_bytes: int) -> None:
        """One more chunk, of those that were to come."""
        with self._lock:
            self._wanted[index] = chunk_bytes
            self._to_come_bytes -= chunk_bytes
            self._stated_s = None
            self._tell()

    def written(self, index: int) -> None:
        """The chunk is on its datanodes."""
        with self._lock:
            self._in_use.pop(index, None)
            done = not (self._wanted or self._ready or self._in_use)
        if done:
            self._grant_client.forget(self._name)

    def give_back(self) -> fx.Steps[None]:
        """Abandon all that is not written. Raises nothing: what is not heard is found out in time."""
        with self._lock:
            unfinished = bool(self._wanted or self._ready or self._in_use)
            self._wanted.clear()
            held = [each.chunk for each in (*self._ready.values(), *self._in_use.values())]
        self._grant_client.forget(self._name)
        if unfinished and self._asked_s is not None:
            message = StateWriteSet(self._token, self._name, [], abandoned=[*self._abandoned, *held])
            with contextlib.suppress(PeacefsError):
                yield from fx.call(message, Scheduled, timeout_s=last_word_timeout_s)

    # -- what comes --------------------------------------------------------------------------------

    def put(self, grants: Sequence[GrantedChunk]) -> None:
        """Grants, perhaps once more."""
        with self._lock:
            for grant in grants:
                if grant.allocated.chunk in self._abandoned:
                    continue  # late, or once more
                if self._wanted.pop(grant.index, None) is not None:
                    self._ready[grant.index] = grant.allocated
            self._tell()

    def refuse(self, error: PeacefsError) -> None:
        """Refuse what is still wanted: it will never be granted."""
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
        """Says what is wanted, and takes in the grants of the answer."""
        try:
            scheduled = yield from fx.call(self._statement(now_s), Scheduled)
        except ServiceUnready:
            # The queue is full, or the coordinator has just started: this is a queue as well.
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
