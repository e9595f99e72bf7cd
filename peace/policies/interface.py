"""The interface of a policy: events and the time go in, grants come out.

A policy decides which nodes receive each chunk and when its writing may start. It is deterministic: chance is
a `random.Random` given at construction, time a number given with each event. Whoever drives it (the
coordinator, the simulator, a dry run) reports every grant's end exactly once; what it does not know or has
already heard of, a policy passes over.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import assert_never

from peacefs.topology.model import Topology

from .ledger import Grant, Ledger, WriteSet


@dataclass(frozen=True, slots=True)
class Submitted:
    """A writer states what it has to write. A set that is known by name is restated: what was not granted
    yet is replaced, and the set keeps its age."""

    write_set: WriteSet


@dataclass(frozen=True, slots=True)
class Finished:
    """The chunk of this grant is on all its nodes."""

    grant: int


@dataclass(frozen=True, slots=True)
class Aborted:
    """The chunk of this grant was given up and waits again; from now on the set avoids the `failed` nodes."""

    grant: int
    failed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The writer wants no more grants for this set. Those in flight keep their capacity until they end."""

    write_set: str


@dataclass(frozen=True, slots=True)
class Changed:
    """Nodes came, went or moved. Grants in flight are left to end as they will."""

    topology: Topology


Event = Submitted | Finished | Aborted | Withdrawn | Changed


class Policy(ABC):
    """Base of all policies: keeps the books, leaves the decisions to four methods of its children."""

    def __init__(self) -> None:
        self._ledger = Ledger()

    def handle(self, events: Iterable[Event], now_s: float) -> list[Grant]:
        """The chunks whose writing may start now because of these events. `now_s` never goes back."""
        for event in events:
            self._hear(event, now_s)
        return self._admit(now_s)

    def adopt(self, write_set: WriteSet, chain: Iterable[str]) -> Grant:
        """Takes over a chunk that is on its way already, through this chain, however full the cluster is: the
        only chunk of its set. Its end is reported like that of a grant."""
        grant = self._ledger.adopt(write_set, chain)
        self._take_over(grant)
        return grant

    def has_room(self, node: str) -> bool:
        """Return whether the chunks in flight leave some of the node's capacity for less urgent work."""
        return True

    @property
    def has_more(self) -> bool:
        """Return whether `handle` yielded to other work before it was done, and must be called again."""
        return False

    def _hear(self, event: Event, now_s: float) -> None:
        match event:
            case Submitted(write_set):
                self._ledger.submit(write_set, now_s)
            case Finished(number):
                self._close(number)
            case Aborted(number, failed):
                self._close(number, aborted=True, failed=failed)
            case Withdrawn(name):
                self._ledger.withdraw(name)
            case Changed(topology):
                self._use(topology)
            case _:
                assert_never(event)

    def _close(self, number: int, *, aborted: bool = False, failed: frozenset[str] = frozenset()) -> None:
        grant = self._ledger.close(number, aborted=aborted, failed=failed)
        if grant is not None:
            self._release(grant)

    @property
    def chunks_waiting(self) -> int:
        """The number of chunks that have been requested and not granted."""
        return sum(len(pending.waiting) for pending in self._ledger.pending())

    def waiting(self) -> list[tuple[str, int]]:
        """Those chunks, by set and number."""
        return [(pending.write_set.name, chunk) for pending in self._ledger.pending() for chunk in pending.waiting]

    @property
    def grants_in_flight(self) -> list[Grant]:
        """The grants whose end has not been reported, oldest first."""
        return self._ledger.in_flight()

    @abstractmethod
    def _use(self, topology: Topology) -> None:
        """From now on the network is this."""

    @abstractmethod
    def _release(self, grant: Grant) -> None:
        """Takes back what a grant was given. Called once a grant."""

    @abstractmethod
    def _take_over(self, grant: Grant) -> None:
        """Reserves for a grant that was adopted."""

    @abstractmethod
    def _admit(self, now_s: float) -> list[Grant]:
        """Grants what may start now."""
