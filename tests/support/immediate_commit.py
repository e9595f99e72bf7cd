"""Group commit for tests: each change has its own entry, which is durable before `submit` returns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from peacefs.coordinator.metadata.group_commit import Settled, no_room, stopping
from peacefs.coordinator.metadata.store import Metadata, MetadataFault, MetadataFull
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.coordinator.operations.durable_answers import DurableAnswers

T = TypeVar("T")


class Commits(Protocol):
    """Requests that change the metadata go here: the promises that both twins keep."""

    def submit(self, change: Callable[[Transaction], T], settled: Settled, *, in_any_case: bool = False) -> T:
        """Return the change's answer; `settled` is called when all it did is durable, or with what undid it.

        That is ServiceUnready where the disk had no room for the entry.

        Raises what the change raises, Overloaded when too many wait, and ServiceUnready when no commit is possible
        any more; then `settled` is not called.
        """

    def wait_for(self, number: int, settled: Settled) -> None:
        """Call `settled` when an entry is durable or was undone."""


class ImmediateCommit:
    """Waits for nobody."""

    def __init__(self, metadata: Metadata, on_fatal: Callable[[MetadataFault], object]) -> None:
        self._metadata = metadata
        self._on_fatal = on_fatal
        self._failed = False

    def submit(self, change: Callable[[Transaction], T], settled: Settled, *, in_any_case: bool = False) -> T:
        """Commit it now."""
        if self._failed:
            raise stopping()
        try:
            outcome = self._metadata.attempt(change)
        except MetadataFault as fault:
            self._fail(fault)
            raise stopping() from fault
        if outcome.error is not None:
            raise outcome.error
        try:
            self._metadata.flush()
        except MetadataFull:
            settled(no_room())
        except MetadataFault as fault:
            settled(stopping())
            self._fail(fault)
        else:
            settled(None)
        answer: T = outcome.answer
        return answer

    def wait_for(self, number: int, settled: Settled) -> None:
        assert number <= self._metadata.rows.durable, "everything is durable at once"
        settled(None)

    def _fail(self, fault: MetadataFault) -> None:
        self._failed = True
        self._on_fatal(fault)


class CommitsAtOnce:
    """Commits for operations of a test. `before` is called before each commit, and may raise."""

    def __init__(self, metadata: Metadata, before: Callable[[], object] = lambda: None) -> None:
        self._commits = ImmediateCommit(metadata, _fail)
        self._before = before

    def __call__(self, change: Callable[[Transaction], T], /, *, in_any_case: bool = False) -> Awaitable[T]:
        """As `operations.context.Commit`."""
        return self._commit(change)

    async def _commit(self, change: Callable[[Transaction], T]) -> T:
        self._before()
        errors: list[Exception | None] = []
        answer = self._commits.submit(change, errors.append)
        (error,) = errors
        if error is not None:
            raise error
        return answer


def durable_at_once(metadata: Metadata) -> DurableAnswers:
    """Return the answers of a store to which every change is committed at once: they wait for nothing."""

    async def until_durable(number: int) -> None:
        raise AssertionError(f"entry {number} is not durable")

    return DurableAnswers(metadata.rows, until_durable)


def _fail(fault: MetadataFault) -> None:
    raise AssertionError(f"the metadata of a test failed: {fault}")
