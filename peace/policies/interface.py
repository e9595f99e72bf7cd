"""The interface of a policy, which receives events with the current time and returns grants.

A policy decides which nodes receive each chunk and when its writing may start. It is deterministic: it is given a
`random.Random` at construction and the time with each call. Its driver (the coordinator, the simulator or a dry
run) reports the end of every grant exactly once. A policy ignores unknown grants and repeated reports.
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
    """A writer submits a set. A set of the same name keeps its age, but its waiting chunks are replaced."""

    write_set: WriteSet


@dataclass(frozen=True, slots=True)
class Finished:
    """The chunk of this grant was written to all its nodes."""

    grant: int


@dataclass(frozen=True, slots=True)
class Aborted:
    """Writing the chunk of this grant failed, so it waits again. The set avoids the `failed` nodes from now on."""

    grant: int
    failed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The writer wants no more grants for this set. Grants in flight keep their capacity until they end."""

    write_set: str


@dataclass(frozen=True, slots=True)
class Changed:
    """Nodes were added, removed or moved. Grants in flight continue."""

    topology: Topology


Event = Submitted | Finished | Aborted | Withdrawn | Changed


class Policy(ABC):
    """Base of all policies. It does the bookkeeping; subclasses implement the decisions in four methods."""

    def __init__(self) -> None:
        self._ledger = Ledger()

    def handle(self, events: Iterable[Event], now_s: float) -> list[Grant]:
        """Process events and return new grants for chunks that may start now. `now_s` must not decrease."""
        for event in events:
            self._hear(event, now_s)
        return self._admit(now_s)

    def adopt(self, write_set: WriteSet, chain: Iterable[str]) -> Grant:
        """Count a chunk that is already being written through this chain, even if the cluster is full.

        It must be the only chunk of its set. Its end is reported like that of a grant.
        """
        grant = self._ledger.adopt(write_set, chain)
        self._take_over(grant)
        return grant

    def has_room(self, node: str) -> bool:
        """Return whether the node has capacity left for less urgent work."""
        return True

    @property
    def waiting_share(self) -> float | None:
        """The share of the last minute in which urgent sets waited; None if the policy does not measure it."""
        return None

    @property
    def has_more(self) -> bool:
        """True if `handle` returned early to limit its duration and must be called again."""
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
        return sum(len(pending.waiting) for pending in self._ledger.pending())

    def waiting(self) -> list[tuple[str, int]]:
        """Return the chunks that wait for a grant, as (set, chunk number)."""
        return [(pending.write_set.name, chunk) for pending in self._ledger.pending() for chunk in pending.waiting]

    @property
    def grants_in_flight(self) -> list[Grant]:
        """The grants whose end was not reported yet, oldest first."""
        return self._ledger.in_flight()

    @abstractmethod
    def _use(self, topology: Topology) -> None:
        """Use this network for all further decisions."""

    @abstractmethod
    def _release(self, grant: Grant) -> None:
        """Release the resources of a grant. Called once per grant."""

    @abstractmethod
    def _take_over(self, grant: Grant) -> None:
        """Reserve resources for an adopted grant."""

    @abstractmethod
    def _admit(self, now_s: float) -> list[Grant]:
        """Grant the chunks that may start now."""
