"""Clients that do random operations on few names concurrently, and record the outcomes."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from itertools import count

from oracles.name_history import Operation
from oracles.name_tree import Call, Names, Node, Tree, shown
from support.name_doors import Door, NotSent, Unknown

_NAMES = "abc"
_OPERATIONS = ("mkdirs", "create", "create", "rename", "rename", "delete", "read", "stat", "list")
#: On average, one of this many operations is in the directory that all clients share.
_SHARED_ONE_IN = 4
_WITH_CONTENT = 0.25
_PAUSE_S = 0.004


def draw(chance: random.Random, top: Names, content: str) -> Call:
    """Return a call on one of few names below a directory."""

    def path() -> Names:
        return (*top, *(chance.choice(_NAMES) for _ in range(chance.choice((1, 1, 2)))))

    op = chance.choice(_OPERATIONS)
    return Call(
        op,
        path(),
        target=path() if op == "rename" else (),
        # Others than empty files need a datanode, which comes back some seconds after the coordinator.
        content=content if op == "create" and chance.random() < _WITH_CONTENT else "",
        overwrite=op in ("create", "rename") and chance.random() < 0.5,
        recursive=op == "delete" and chance.random() < 0.5,
    )


class Recorder:
    """Records the outcomes of clients, and when coordinators were dead. `operations` is the history."""

    def __init__(self) -> None:
        self._seen: list[tuple[Operation, float]] = []
        self._deaths: list[float] = []
        self.surprises: list[str] = []

    def died(self) -> None:
        """Record that the coordinator has ended and no other was started yet."""
        self._deaths.append(time.monotonic())

    def do(self, client: str, door: Door, call: Call) -> None:
        """Perform a call and record it."""
        called = time.monotonic()
        try:
            outcome = door.perform(call)
        except NotSent:
            return
        except Unknown as unknown:
            self._seen.append((Operation(client, call, called, None, None), unknown.since))
            return
        except Exception as surprise:
            self.surprises.append(f"{client}: {call}: {surprise!r}")
            raise
        self._seen.append((Operation(client, call, called, time.monotonic(), outcome), 0.0))

    def operations(self) -> list[Operation]:
        """Return the history. What reached a dead coordinator took effect before its end, or never."""
        return [self._bounded(operation, since) for operation, since in self._seen]

    def _bounded(self, operation: Operation, since: float) -> Operation:
        later = [death for death in self._deaths if death >= since]
        return operation._replace(over=min(later)) if operation.returned is None and later else operation

    def look(self, door: Door, tops: Sequence[str]) -> None:
        """Read everything below some directories as one more client."""
        unseen: list[Names] = [(top,) for top in tops]
        while unseen:
            path = unseen.pop()
            before = len(self._seen)
            self.do(f"last look, {door.name}", door, Call("list", path))
            assert len(self._seen) > before, f"{shown(path)} cannot be listed"
            names = self._seen[-1][0].outcome
            assert isinstance(names, tuple), (path, names)
            for name in names:
                child = (*path, str(name))
                self.do(f"last look, {door.name}", door, Call("stat", child))
                found = self._seen[-1][0].outcome
                if isinstance(found, tuple) and found[0] == "directory":
                    unseen.append(child)
                else:
                    self.do(f"last look, {door.name}", door, Call("read", child))


class Workload:
    """Client threads, from `start` to `stop`, in groups. Each group has a directory, and all share one."""

    def __init__(self, recorder: Recorder, seed: int, groups: Sequence[Sequence[Door]], prefix: str = "") -> None:
        self._recorder = recorder
        self._stopped = threading.Event()
        self._contents = count()
        self._shared = f"{prefix}shared"
        self.tops = [*(f"{prefix}group-{number}" for number in range(len(groups))), self._shared]
        self._threads = [
            threading.Thread(target=self._work, args=(random.Random(f"{seed} {top} {n}"), top, n, door))
            for top, doors in zip(self.tops[:-1], groups, strict=True)
            for n, door in enumerate(doors)
        ]

    def tree(self) -> Tree:
        """Return the initial tree: the directories of the groups, which must exist."""
        return Tree({(): Node(None)} | {(top,): Node(None) for top in self.tops})

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _work(self, chance: random.Random, top: str, number: int, door: Door) -> None:
        name = f"{top} {number} {door.name}"
        while not self._stopped.is_set():
            where = self._shared if chance.randrange(_SHARED_ONE_IN) == 0 else top
            self._recorder.do(name, door, draw(chance, (where,), f"content {next(self._contents)}"))
            time.sleep(_PAUSE_S * chance.random() * 2)
