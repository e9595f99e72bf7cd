"""Bookkeeping that all policies share: the waiting sets and the grants in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

from peacefs.protocol.limits import small_chunk_bytes_max
from peacefs.protocol.values.write_classes import WriteClass


@dataclass(frozen=True, slots=True)
class WriteSet:
    """Everything that one writer writes for one checkpoint: the paper's triple (w, r, k), with sizes in bytes.

    `writer` is the writer's server, or None if it is outside the cluster; `exclude` are nodes that failed for it.
    `asked_s` is the time when the writer began to wait, if it waited before this submission. `more_bytes` is the
    expected size of later chunks of the same checkpoint. `begun` is True if the writer has already written a part
    of it. `due_s` is the expected time of the next occurrence of the same write, if known.
    """

    name: str
    writer: str | None
    replication: int
    chunks: tuple[int, ...]
    exclude: frozenset[str] = frozenset()
    asked_s: float | None = None
    more_bytes: int = 0
    begun: bool = False
    write_class: WriteClass = WriteClass.BLOCKING
    due_s: float | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """The permission to write chunk number `chunk` of a set now. `chain` is the pipeline."""

    number: int
    write_set: str
    writer: str | None
    chunk: int
    chunk_bytes: int
    chain: tuple[str, ...]


@dataclass(slots=True, eq=False)
class PendingSet:
    """A set that is not completely written.

    `unfinished_bytes` counts waiting chunks and chunks in flight. `waiting` has the small chunks first, then the
    others in descending size.
    """

    write_set: WriteSet
    asked_s: float
    order: int
    waiting: deque[int]
    unfinished_bytes: int
    #: Nodes that failed while chunks of this set were written.
    failed: frozenset[str] = frozenset()
    in_flight: int = 0
    started: bool = False
    #: The time since which the policy has had no room for the set; None after each grant. Only some policies set
    #: it.
    refused_since_s: float | None = None

    @property
    def exclude(self) -> frozenset[str]:
        return self.write_set.exclude | self.failed

    @property
    def next_bytes(self) -> int:
        return self.write_set.chunks[self.waiting[0]]


def _in_turn(chunks: Sequence[int]) -> deque[int]:
    """Order chunks: first the small ones, which never wait, then by descending size, to end with short writes."""
    large = [(size > small_chunk_bytes_max) * size for size in chunks]
    return deque(sorted(range(len(chunks)), key=lambda chunk: -large[chunk] if large[chunk] else -inf))


@dataclass(slots=True)
class Ledger:
    """Sets by name and grants by number. A grant is closed at most once; a set is removed with its last grant."""

    _sets: dict[str, PendingSet] = field(default_factory=dict)
    _grants: dict[int, tuple[Grant, PendingSet]] = field(default_factory=dict)
    _submitted: int = 0
    _granted: int = 0

    def submit(self, write_set: WriteSet, now_s: float) -> None:
        assert write_set.replication >= 1
        assert all(chunk_bytes > 0 for chunk_bytes in write_set.chunks)
        known = self.withdraw(write_set.name)
        if not write_set.chunks:
            return
        self._submitted += 1
        self._sets[write_set.name] = PendingSet(
            write_set,
            asked_s=known.asked_s if known else now_s if write_set.asked_s is None else write_set.asked_s,
            order=known.order if known else self._submitted,
            waiting=_in_turn(write_set.chunks),
            unfinished_bytes=sum(write_set.chunks) + write_set.more_bytes,
            failed=known.failed if known else frozenset(),
            started=known.started if known else write_set.begun,
            refused_since_s=known.refused_since_s if known else None,
        )

    def withdraw(self, name: str) -> PendingSet | None:
        """Remove and return the set; its grants in flight stay."""
        pending = self._sets.pop(name, None)
        if pending is not None:
            pending.waiting.clear()
        return pending

    def grant(self, pending: PendingSet, chain: Iterable[str]) -> Grant:
        chunk = pending.waiting.popleft()
        self._granted += 1
        write_set = pending.write_set
        grant = Grant(
            self._granted, write_set.name, write_set.writer, chunk, write_set.chunks[chunk], tuple(chain)
        )
        self._grants[grant.number] = grant, pending
        pending.in_flight += 1
        pending.started = True
        pending.refused_since_s = None
        return grant

    def adopt(self, write_set: WriteSet, chain: Iterable[str]) -> Grant:
        """Record a grant that was given elsewhere, for the only chunk of a set. The set itself is not recorded."""
        return self.grant(PendingSet(write_set, 0.0, 0, deque([0]), 0), chain)

    def close(self, number: int, *, aborted: bool, failed: frozenset[str]) -> Grant | None:
        """Close a grant and return it; None if it is unknown or already closed."""
        grant, pending = self._grants.pop(number, (None, None))
        if grant is None or pending is None:
            return None
        pending.in_flight -= 1
        pending.failed |= failed
        if self._sets.get(grant.write_set) is not pending:
            return grant
        if aborted:
            pending.waiting.appendleft(grant.chunk)
            return grant
        pending.unfinished_bytes -= grant.chunk_bytes
        if not pending.waiting and not pending.in_flight:
            del self._sets[grant.write_set]
        return grant

    def find(self, name: str) -> PendingSet | None:
        """Return the set with this name, if it is not completely written."""
        return self._sets.get(name)

    def pending(self) -> list[PendingSet]:
        """Return the sets in the order of their first submission."""
        return list(self._sets.values())

    def in_flight(self) -> list[Grant]:
        """Return the open grants, oldest first."""
        return [grant for grant, _ in self._grants.values()]
