"""Commits for tests: each change has its own entry, which is durable before `submit` returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from peacefs.coordinator.metadata.group_commit import Settled, no_room, stopping
from peacefs.coordinator.metadata.store import Metadata, MetadataFault, MetadataFull
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.coordinator.operations.durability.commits import Commits
from peacefs.coordinator.operations.durability.durable_answers import DurableAnswers
from peacefs.protocol.errors import ServiceUnready

T = TypeVar("T")


class ImmediateGroup:
    """The twin of `GroupCommit` that commits each change at once."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._has_failed = False

    @property
    def last(self) -> int:
        return self._metadata.rows.last

    def submit(self, change: Callable[[Transaction], T], *, in_any_case: bool = False) -> T:
        if self._has_failed:
            raise stopping()
        try:
            outcome = self._metadata.attempt(change)
            if outcome.error is not None:
                raise outcome.error
            self._metadata.flush()
        except MetadataFull:
            raise no_room() from None
        except MetadataFault as fault:
            self._has_failed = True
            raise AssertionError(f"the metadata of a test failed: {fault}") from fault
        answer: T = outcome.answer
        return answer

    def wait_for(self, number: int, settled: Settled) -> None:
        assert number <= self._metadata.rows.durable, f"entry {number} is not durable"
        settled(None)


class CommitsAtOnce(Commits):
    """Commits for operations of a test. `before` is called before each commit, and may raise."""

    def __init__(self, metadata: Metadata, before: Callable[[], object] = lambda: None) -> None:
        super().__init__(ImmediateGroup(metadata), _settled_at_once, before)


async def _settled_at_once(register: Callable[[Settled], None]) -> None:
    outcomes: list[ServiceUnready | None] = []
    register(outcomes.append)
    assert outcomes == [None]


def durable_at_once(metadata: Metadata) -> DurableAnswers:
    """Return the answers of a store in which every change is durable at once."""
    return DurableAnswers(metadata.rows, CommitsAtOnce(metadata))
