"""The twin of group commit for tests: each change has a commit of its own, made before `submit` returns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

from peacefs.coordinator.metadata.group_commit import no_room
from peacefs.coordinator.metadata.store import Metadata, MetadataFault, MetadataFull
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.protocol.errors import ServiceUnready

T = TypeVar("T")


class Commits(Protocol):
    """Requests that change the metadata go here: the promises that both twins keep."""

    def submit(self, request: Callable[[Transaction], T]) -> Future[T]:
        """The future has the request's answer when all it did is durable, or the error that undid it.

        That is ServiceUnready where the disk had no room for the commit.

        Raises Overloaded when too many wait and ServiceUnready when no commit is possible any more.
        """


class ImmediateCommit:
    """Waits for nobody."""

    def __init__(self, metadata: Metadata, on_fatal: Callable[[MetadataFault], object]) -> None:
        self._metadata = metadata
        self._on_fatal = on_fatal
        self._failed = False

    def submit(self, request: Callable[[Transaction], T]) -> Future[T]:
        """Commit it now."""
        future: Future[T] = Future()
        if self._failed:
            raise _unready()
        try:
            (outcome,) = self._metadata.commit([request])
        except MetadataFull:
            future.set_exception(no_room())
        except MetadataFault as fault:
            self._failed = True
            future.set_exception(_unready())
            self._on_fatal(fault)
        else:
            if outcome.error is not None:
                future.set_exception(outcome.error)
            else:
                future.set_result(outcome.answer)
        return future


def _unready() -> ServiceUnready:
    return ServiceUnready("the coordinator is stopping and commits no more; ask again when it is back")


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
        return self._commits.submit(change).result()


def _fail(fault: MetadataFault) -> None:
    raise AssertionError(f"the metadata of a test failed: {fault}")
