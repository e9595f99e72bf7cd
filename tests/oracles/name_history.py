"""Decide whether the outcomes that clients saw are linearizable: whether one order of operations explains them.

Each operation must take effect at one moment between its call and its answer, and have the outcome that
`name_tree` gives at that moment. An operation without a known outcome takes effect after its call, once or never.
Attempts under one request id are one operation. Knows nothing of the product.

The search is Wing and Gong's with Lowe's refinements ("Testing for linearizability", 2017). Histories are divided
into subtrees that no operation joins. The state after each answer is a set of configurations: a tree, and the
operations that took effect although they are not answered yet. An operation takes effect before an answer only if
it touches something that matters to that answer.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from .name_tree import READS, Call, Names, Outcome, Tree, apply, shown

#: Maximum number of configurations. With more, the history is too concurrent to be decided.
_CONFIGURATIONS_MAX = 20_000
#: Maximum number of events before a contradiction that may explain it.
_EXPLAINED_EVENTS = 400
_EXPLAINED_CONFIGURATIONS_MAX = 500
#: Processor time after which the shortest explanation found so far is shown.
_EXPLAINED_S = 10.0
#: Operations that neither set nor obey permissions and quotas. Those would join subtrees.
_OPERATIONS = frozenset(("mkdirs", "create", "rename", "delete", *READS))


class Operation(NamedTuple):
    """One attempt of a client. Times are seconds of one clock."""

    client: str
    call: Call
    called: float
    #: Time of the answer; None if the outcome is unknown.
    returned: float | None
    outcome: Outcome | None
    #: Attempts with the same id are one operation. An empty id is no id.
    request: str = ""
    #: Time after which an operation with an unknown outcome cannot take effect, since its server had died.
    over: float = math.inf

    def __str__(self) -> str:
        until = "?" if self.returned is None else f"{self.returned:.6f}"
        told = "unknown" if self.returned is None else repr(self.outcome)
        return f"{self.called:.6f} to {until}  {self.client}: {self.call} -> {told}"


class Contradiction(NamedTuple):
    """Why a history is not linearizable. `str` gives a readable form."""

    #: Operations whose outcomes contradict each other, whatever the other operations did; in the order of their
    #: calls.
    operations: list[Operation]
    #: Operations with unknown outcomes on the same names. None of them explains the contradiction.
    unknown: list[Operation]
    #: Possible states of the names before, unless it is the initial state.
    before: list[str]

    def __str__(self) -> str:
        lines = ["no order of these operations explains what the clients were told:"]
        lines += [f"  {state}" for state in self.before]
        lines += [f"  {operation}" for operation in self.operations]
        if self.unknown:
            lines += ["nor do these, whose outcomes are unknown:", *(f"  {each}" for each in self.unknown)]
        return "\n".join(lines)


class TooConcurrent(Exception):
    """Too many states are possible: the history cannot be decided."""


def check(history: Iterable[Operation], initial: Tree | None = None) -> Contradiction | None:
    """Return the first contradiction of a history, or None if it is linearizable. Raises TooConcurrent.

    `initial` is the tree before the history.
    """
    tree = Tree() if initial is None else initial
    merged: list[Operation] = []
    for attempts in _by_request(history):
        told = {attempt.outcome for attempt in attempts if attempt.returned is not None}
        if len(told) > 1:
            return Contradiction(attempts, [], [])
        merged.append(_merged(attempts))
    for part in _parts(merged, tree):
        if (found := _Search(part, _of_part(tree, part)).run()) is not None:
            return found
    return None


# -- attempts and parts ----------------------------------------------------------------------------------


def _by_request(history: Iterable[Operation]) -> Iterator[list[Operation]]:
    attempts: dict[str, list[Operation]] = {}
    for operation in history:
        assert operation.call.op in _OPERATIONS, f"{operation.call.op} is not an operation of histories"
        if operation.request:
            attempts.setdefault(operation.request, []).append(operation)
        else:
            yield [operation]
    yield from attempts.values()


def _merged(attempts: list[Operation]) -> Operation:
    """Merge the attempts of one operation. It took effect before the first answer, if there was one."""
    first = min(attempts, key=lambda attempt: attempt.called)
    answered = [attempt for attempt in attempts if attempt.returned is not None]
    if not answered:
        return first._replace(over=max(attempt.over for attempt in attempts))
    earliest = min(answered, key=lambda attempt: attempt.returned or 0.0)
    return first._replace(returned=earliest.returned, outcome=earliest.outcome)


def _paths(call: Call) -> tuple[Names, ...]:
    return (call.path, call.target) if call.op == "rename" else (call.path,)


def _parts(history: Sequence[Operation], initial: Tree) -> Iterator[list[Operation]]:
    """Divide a history by subtrees that no operation joins."""
    if not history:
        return
    base = _base(history, initial)
    depth = len(base)
    joined: dict[str, str] = {}

    def root_of(name: str) -> str:
        while joined.setdefault(name, name) != name:
            name = joined[name]
        return name

    for operation in history:
        paths = _paths(operation.call)
        if any(len(path) == depth for path in paths):
            yield list(history)
            return
        joined[root_of(paths[0][depth])] = root_of(paths[-1][depth])
    parts: dict[str, list[Operation]] = {}
    for operation in history:
        parts.setdefault(root_of(operation.call.path[depth]), []).append(operation)
    for part in parts.values():
        # Below a directory that no operation touches, divide again.
        yield from _parts(part, initial) if len(parts) > 1 or _base(part, initial) != base else [part]


def _base(history: Sequence[Operation], initial: Tree) -> Names:
    """Return the deepest directory above all operations that exists initially and that none touches."""
    paths = [path for operation in history for path in _paths(operation.call)]
    common = min(paths)
    last = max(paths)
    depth = 0
    while depth < min(len(common), len(last)) and common[depth] == last[depth]:
        depth += 1
    depth = min(depth, min(map(len, paths)))
    base = common[:depth]
    while base and (base not in initial.nodes or not initial.nodes[base].is_directory or base in paths):
        base = base[:-1]
    return base


def _of_part(initial: Tree, part: Sequence[Operation]) -> Tree:
    """Return the part of the tree that the operations can see."""
    paths = {path for operation in part for path in _paths(operation.call)}
    kept = {
        path: node
        for path, node in initial.nodes.items()
        if any(path == each[: len(path)] or each == path[: len(each)] for each in paths)
    }
    return Tree(kept)


# -- what touches what -----------------------------------------------------------------------------------


def _touched(call: Call) -> tuple[Names, ...]:
    """Return the roots of the subtrees that a call looks at or changes."""
    if call.op != "rename":
        return (call.path,)
    # The parent of a target must exist, and another operation may make it.
    return (call.path, call.target[:-1] or call.target)


def _touch(one: Call, other: Call) -> bool:
    """Return whether the outcome of one call may depend on the other."""
    if one.op in READS and other.op in READS:
        return False
    return any(a[: len(b)] == b or b[: len(a)] == a for a in _touched(one) for b in _touched(other))


# -- the search ------------------------------------------------------------------------------------------


class _Configuration(NamedTuple):
    """A possible tree, and the operations without an answer yet that took effect in it."""

    tree: Tree
    applied: frozenset[int]


class _Event(NamedTuple):
    """The call of an operation, or its end: the answer, or the time after which it cannot take effect."""

    time: float
    is_end: bool
    number: int


class _Search:
    """The search in one part. `run` explains the first contradiction."""

    def __init__(self, history: Sequence[Operation], initial: Tree) -> None:
        # Reads without an answer tell nothing.
        self._history = [each for each in history if each.returned is not None or each.call.op not in READS]
        self._initial = initial
        self._snapshots: deque[tuple[int, set[_Configuration]]] = deque(maxlen=_EXPLAINED_EVENTS)

    def run(self) -> Contradiction | None:
        operations = dict(enumerate(self._history))
        events = _events(operations)
        start = {_Configuration(self._initial, frozenset())}
        failed = _failing(events, operations, start, set(), _CONFIGURATIONS_MAX, self._snapshots)
        return None if failed is None else self._explained(events, operations, failed)

    def _explained(self, events: list[_Event], operations: dict[int, Operation], failed: int) -> Contradiction:
        """Find a small set of outcomes that contradict each other, by dropping others while there is time."""
        begun, start = self._snapshots[0]
        window = events[begun : failed + 1]
        earlier = {event.number for event in events[:begun]}
        over = {event.number for event in events[:begun] if event.is_end}
        pending = earlier - over
        part = {number: operations[number] for number in pending | {event.number for event in window}}
        culprit = events[failed].number
        known = [n for n in sorted(part) if part[n].returned is not None and n != culprit]

        def contradicts(remaining: set[int]) -> bool:
            weaker = {
                number: operation if number in remaining or operation.returned is None else _forgotten(operation)
                for number, operation in part.items()
                if number in remaining or operation.call.op not in READS
            }
            left = [event for event in window if event.number in weaker]
            there = {config._replace(applied=config.applied.intersection(weaker)) for config in start}
            try:
                limit = _EXPLAINED_CONFIGURATIONS_MAX
                return _failing(left, weaker, there, pending & weaker.keys(), limit) is not None
            except TooConcurrent:
                return False

        remaining = {culprit, *known}
        size = max(1, len(known) // 2)
        until_s = time.process_time() + _EXPLAINED_S
        while True:
            for at in range(0, len(known), size):
                fewer = remaining - set(known[at : at + size])
                if fewer < remaining and time.process_time() < until_s and contradicts(fewer):
                    remaining = fewer
            if size == 1:
                break
            known = [number for number in known if number in remaining]
            size = max(1, size // 2)
        found = [part[number] for number in sorted(remaining, key=lambda number: part[number].called)]
        unknown = [
            operation
            for operation in part.values()
            if operation.returned is None and any(_touch(operation.call, each.call) for each in found)
        ]
        return Contradiction(found, unknown, self._described(start, found) if begun else [])

    def _described(self, start: set[_Configuration], found: Sequence[Operation]) -> list[str]:
        """Describe the names that matter in each configuration."""
        concerned = {path for operation in found for path in _paths(operation.call)}
        states = set()
        for config in start:
            there = [
                f"{shown(path)}{'/' if node.is_directory else f' = {node.content!r}'}"
                for path, node in sorted(config.tree.nodes.items())
                if any(path[: len(each)] == each for each in concerned)
            ]
            states.add(f"before: {', '.join(there) or 'none of the names'}")
        return sorted(states)


def _forgotten(operation: Operation) -> Operation:
    """Return the operation with an unknown outcome."""
    assert operation.returned is not None
    return operation._replace(returned=None, outcome=None, over=operation.returned)


def _events(operations: Mapping[int, Operation]) -> list[_Event]:
    events = []
    for number, operation in operations.items():
        events.append(_Event(operation.called, False, number))
        end = operation.over if operation.returned is None else operation.returned
        if end < math.inf:
            events.append(_Event(end, True, number))
    return sorted(events)


def _failing(
    events: Sequence[_Event],
    operations: Mapping[int, Operation],
    start: set[_Configuration],
    pending: set[int],
    configurations_max: int,
    snapshots: deque[tuple[int, set[_Configuration]]] | None = None,
) -> int | None:
    """Return the index of the first event after which no configuration is left, None if there is none."""
    current, waiting = start, set(pending)
    for index, event in enumerate(events):
        if snapshots is not None:
            snapshots.append((index, current))
        if not event.is_end:
            waiting.add(event.number)
            continue
        current = _after_end(event.number, operations, current, waiting, configurations_max)
        waiting.discard(event.number)
        if not current:
            return index
        if len(current) > 1:
            current = _without_dominated(current, operations)
    return None


def _after_end(
    ended: int,
    operations: Mapping[int, Operation],
    current: set[_Configuration],
    waiting: set[int],
    configurations_max: int,
) -> set[_Configuration]:
    """Return the configurations after the end of an operation."""
    concerned = _concerned(ended, operations, waiting)
    is_known = operations[ended].returned is not None
    after: set[_Configuration] = set()
    seen: set[_Configuration] = set()
    for config in current:
        if ended in config.applied:
            after.add(_Configuration(config.tree, config.applied - {ended}))
            continue
        if not is_known:
            after.add(config)
        unfinished = [config]
        while unfinished:
            tree, applied = unfinished.pop()
            if (made := _taken(tree, operations[ended])) is not None:
                after.add(_Configuration(made, applied))
            for number in concerned:
                if number in applied or (made := _taken(tree, operations[number])) is None:
                    continue
                reached = _Configuration(made, applied | {number})
                if reached not in seen:
                    seen.add(reached)
                    unfinished.append(reached)
            if len(seen) + len(after) > configurations_max:
                raise TooConcurrent(
                    f"more than {configurations_max} states are possible after {operations[ended]}"
                )
    return after


def _concerned(ended: int, operations: Mapping[int, Operation], waiting: set[int]) -> list[int]:
    """Return the unanswered operations on which one may depend, directly or through others."""
    left = waiting - {ended}
    found: list[int] = []
    reached = [ended]
    while reached and left:
        call = operations[reached.pop()].call
        near = [number for number in left if _touch(operations[number].call, call)]
        left.difference_update(near)
        found += near
        reached += near
    return found


def _taken(tree: Tree, operation: Operation) -> Tree | None:
    """Return the tree after an operation, None if its outcome does not fit. An unknown one must change it."""
    made, outcome = apply(tree, operation.call)
    if operation.returned is None:
        return None if made is tree else made
    return made if outcome == operation.outcome and type(outcome) is type(operation.outcome) else None


def _without_dominated(current: set[_Configuration], operations: Mapping[int, Operation]) -> set[_Configuration]:
    """Drop configurations that differ from another only by spent operations of unknown outcome."""
    by_tree: dict[Tree, list[frozenset[int]]] = {}
    for tree, applied in sorted(current, key=lambda config: len(config.applied)):
        kept = by_tree.setdefault(tree, [])
        if not any(
            fewer <= applied and all(operations[number].returned is None for number in applied - fewer)
            for fewer in kept
        ):
            kept.append(applied)
    return {_Configuration(tree, applied) for tree, kept in by_tree.items() for applied in kept}
