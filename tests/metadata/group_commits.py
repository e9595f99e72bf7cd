"""A group commit over a store in memory. The test decides when its entries are written and its loop goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from journal.replicated_store import rows_of

from peacefs.coordinator.metadata.group_commit import GroupCommit
from peacefs.coordinator.metadata.sqlite.store import MetadataInMemory, store_in_memory
from peacefs.coordinator.metadata.store import Metadata, MetadataFault
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.protocol.errors import ServiceUnready

T = TypeVar("T")
Done = Callable[[BaseException | None], None]


def mkdirs(path: str) -> Callable[[Transaction], bool]:
    return lambda tx: namespace.mkdirs(tx, parse_path(path), "ann", 0o755, 1)


def names(metadata: Metadata, path: str = "/") -> list[str]:
    return [entry.name for entry in namespace.list_page(metadata.reader(), parse_path(path)).entries]


class Writing:
    """A `Run` that keeps its work, and the callbacks of the loop, until the test runs them."""

    def __init__(self) -> None:
        self.works: list[tuple[Callable[[], None], Done]] = []
        self.soon: list[Callable[[], None]] = []

    def __call__(self, work: Callable[[], None], done: Done) -> None:
        self.works.append((work, done))

    def close(self) -> None:
        """Do nothing: `GroupCommit.close` writes what is left."""

    def begin(self) -> None:
        """Run the callbacks of the loop, which begins an entry."""
        while self.soon:
            soon, self.soon = self.soon, []
            for call in soon:
                call()

    def write(self) -> Callable[[], None]:
        """Write the entry under way. Return the callback that reports it to the loop."""
        work, done = self.works.pop(0)
        error: BaseException | None = None
        try:
            work()
        except Exception as raised:
            error = raised
        return lambda: done(error)

    def turn(self) -> None:
        """Run everything until nothing is under way."""
        self.begin()
        while self.works:
            self.write()()
            self.begin()


class Told:
    """Records the outcomes that waiting callers got, in order."""

    def __init__(self) -> None:
        self.outcomes: dict[str, ServiceUnready | None] = {}

    def __call__(self, name: str) -> Callable[[ServiceUnready | None], None]:
        def settled(outcome: ServiceUnready | None) -> None:
            assert name not in self.outcomes, "told twice"
            self.outcomes[name] = outcome

        return settled

    @property
    def well(self) -> list[str]:
        return [name for name, outcome in self.outcomes.items() if outcome is None]

    @property
    def unready(self) -> list[str]:
        return [name for name, outcome in self.outcomes.items() if outcome is not None]


class Group:
    """A group commit over a store in memory."""

    def __init__(self, **changes: Any) -> None:
        self.metadata: MetadataInMemory = store_in_memory(owner="root")
        self.metadata.begin_epoch()
        self.log = self.metadata.log
        # Keep the whole log, for `rows_of_log`.
        self.log.drop_before = lambda number, kept_bytes=0: None  # type: ignore[method-assign]
        self.writing, self.told = Writing(), Told()
        self.faults: list[MetadataFault] = []
        self.room: list[bool] = []
        self.commits = GroupCommit(
            self.metadata,
            self.faults.append,
            self.room.append,
            run=self.writing,
            soon=lambda call: self.writing.soon.append(call),
            **changes,
        )

    def submit(self, change: Callable[[Transaction], T], name: str, **how: Any) -> T:
        """Make a change, and wait as `name` until it is durable."""
        answer = self.commits.submit(change, **how)
        self.commits.wait_for(self.commits.last, self.told(name))
        return answer

    def mkdirs(self, path: str, **how: Any) -> bool:
        return self.submit(mkdirs(path), path, **how)

    def rows_of_log(self) -> dict[str, list[Any]]:
        """Return the rows that a start would find: those of the log alone."""
        image = store_in_memory(owner="root")
        replayed = MetadataInMemory(image.image, self.log)
        return rows_of(replayed)
