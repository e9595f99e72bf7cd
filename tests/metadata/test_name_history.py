"""Tests of the oracle `name_history`: histories written by hand and random ones, with known verdicts."""

from __future__ import annotations

import itertools
import math
import random
import time
from typing import Any

import pytest
from oracles.name_history import Operation, check
from oracles.name_tree import Call, Names, Node, Outcome, Refused, Tree, apply
from support.long_runs import often
from support.name_workload import draw

_MISSING = Refused("FileNotFoundException")
_EXISTS = Refused("FileAlreadyExistsException")


def did(
    op: str,
    path: str,
    when: tuple[float, float | None],
    outcome: Outcome | None = True,
    client: str = "a",
    request: str = "",
    over: float = math.inf,
    **arguments: Any,
) -> Operation:
    """Return an operation. Without a time of return, its outcome is unknown."""
    if "target" in arguments:
        arguments["target"] = _names(arguments["target"])
    call = Call(op, _names(path), **arguments)
    return Operation(client, call, when[0], when[1], None if when[1] is None else outcome, request, over)


def _names(path: str) -> Names:
    return tuple(path.strip("/").split("/"))


_FILE_1 = did("create", "f", (0, 1), content="1")

LINEARIZABLE: dict[str, list[Operation]] = {
    "nothing": [],
    "one after the other": [
        did("mkdirs", "d/e", (0, 1)),
        did("create", "d/e/f", (2, 3), content="1"),
        did("read", "d/e/f", (4, 5), "1"),
        did("list", "d", (4, 5), ("e",)),
        did("rename", "d/e", (6, 7), target="g"),
        did("read", "g/f", (8, 9), "1"),
        did("delete", "g", (10, 11), Refused("PathIsNotEmptyDirectoryException")),
        did("delete", "g", (12, 13), recursive=True),
        did("delete", "g", (14, 15), False),
    ],
    "a read beside a write sees it": [did("create", "f", (0, 5), content="1"), did("read", "f", (1, 2), "1", "b")],
    "a read beside a write does not see it": [
        did("create", "f", (0, 5), content="1"),
        did("read", "f", (1, 2), _MISSING, "b"),
    ],
    "a write of unknown outcome took effect late": [
        did("create", "f", (0, None), content="1"),
        did("read", "f", (1, 2), _MISSING, "b"),
        did("read", "f", (3, 4), "1", "b"),
    ],
    "a write of unknown outcome never took effect": [
        did("create", "f", (0, None), content="1"),
        did("read", "f", (1, 2), _MISSING, "b"),
        did("create", "f", (3, 4), content="2"),
    ],
    "a delete of unknown outcome took effect between two creations": [
        _FILE_1,
        did("delete", "f", (2, None)),
        did("create", "f", (3, 4), content="2"),
        did("read", "f", (5, 6), "2"),
    ],
    "one of two creations wins": [
        did("create", "f", (0, 5), content="1"),
        did("create", "f", (0, 5), _EXISTS, "b", content="2"),
    ],
    "attempts under one id": [
        did("create", "f", (0, None), request="r", content="1"),
        did("create", "f", (2, 3), request="r", content="1"),
        did("create", "f", (2, 4), request="r", content="1"),
    ],
    "a rename that is asked again succeeds": [
        _FILE_1,
        did("rename", "f", (2, 3), target="g"),
        did("rename", "f", (4, 5), target="g"),
    ],
    "readers see a rename before and after": [
        _FILE_1,
        did("rename", "f", (2, 9), target="g"),
        did("read", "f", (3, 4), "1", "b"),
        did("read", "g", (5, 6), "1", "c"),
        did("read", "f", (7, 8), _MISSING, "b"),
    ],
    "two clients overwrite, a third reads both in their order": [
        did("create", "f", (0, 9), content="1", overwrite=True),
        did("create", "f", (0, 9), True, "b", content="2", overwrite=True),
        did("read", "f", (1, 2), "2", "c"),
        did("read", "f", (3, 4), "1", "c"),
    ],
    "a rename needs a parent that another made meanwhile": [
        _FILE_1,
        did("rename", "f", (2, 9), True, "b", target="d/e/f"),
        did("create", "d/e/g", (3, 10), content="2"),
    ],
}
#: Maximum number of operations in the shown contradiction.
IMPOSSIBLE: dict[str, tuple[list[Operation], int]] = {
    "an acknowledged write is lost": ([_FILE_1, did("read", "f", (2, 3), _MISSING, "b")], 2),
    "a delete is undone": ([_FILE_1, did("delete", "f", (2, 3)), did("read", "f", (4, 5), "1")], 2),
    "a read goes back": (
        [
            did("create", "f", (0, 9), content="1"),
            did("read", "f", (1, 2), "1", "b"),
            did("read", "f", (3, 4), _MISSING, "c"),
        ],
        2,
    ),
    "what was read and was never durable vanishes": (
        [
            did("create", "f", (0, None), content="1", over=3),
            did("read", "f", (1, 2), "1", "b"),
            did("stat", "f", (4, 5), _MISSING, "b"),
        ],
        2,
    ),
    "an operation takes effect after its server died": (
        [
            did("create", "f", (0, None), content="1", over=3),
            did("read", "f", (4, 5), _MISSING, "b"),
            did("read", "f", (6, 7), "1", "b"),
        ],
        2,
    ),
    "a delete is done twice": (
        [_FILE_1, did("delete", "f", (2, 5)), did("delete", "f", (2, 5), True, "b")],
        3,
    ),
    "a rename is seen half, with both names": (
        [
            _FILE_1,
            did("rename", "f", (2, 9), target="g"),
            did("read", "g", (3, 4), "1", "b"),
            did("read", "f", (5, 6), "1", "c"),
        ],
        3,
    ),
    "a rename is seen half, with neither name": (
        [
            did("create", "d/f", (0, 1), content="1"),
            did("rename", "d/f", (2, 9), target="d/g"),
            did("list", "d", (3, 4), (), "b"),
        ],
        2,
    ),
    "a creation is answered twice": (
        [did("create", "f", (0, 5), content="1"), did("create", "f", (0, 5), True, "b", content="2")],
        2,
    ),
    "two attempts under one id are answered differently": (
        [
            did("create", "f", (0, 5), request="r", content="1"),
            did("create", "f", (0, 6), _EXISTS, request="r", content="1"),
        ],
        2,
    ),
    "a retry takes effect again": (
        [
            did("create", "f", (0, None), request="r", content="1"),
            did("create", "f", (1, 2), request="r", content="1"),
            did("delete", "f", (3, 4), True, "b"),
            did("read", "f", (5, 6), "1", "b"),
        ],
        2,
    ),
    "two winners of a strict rename to one name": (
        [
            did("create", "f", (0, 1), content="1"),
            did("create", "g", (0, 1), content="2"),
            did("rename", "f", (2, 9), target="h"),
            did("rename", "g", (2, 9), True, "b", target="h"),
        ],
        2,
    ),
    "two winners of a strict rename of one name": (
        [
            _FILE_1,
            did("rename", "f", (2, 9), target="g"),
            did("rename", "f", (2, 9), True, "b", target="h"),
        ],
        3,
    ),
    "a mixed content": ([_FILE_1, did("read", "f", (2, 3), "12", "b")], 2),
    "a wrong length": ([_FILE_1, did("stat", "f", (2, 3), (2, "superuser", 0o644), "b")], 2),
    "a list without a name that was answered": ([did("mkdirs", "d/e", (0, 1)), did("list", "d", (2, 3), ())], 2),
    "an unknown operation takes effect twice": (
        [
            _FILE_1,
            did("delete", "f", (2, None)),
            did("read", "f", (3, 4), _MISSING),
            did("create", "f", (5, 6), content="2"),
            did("read", "f", (7, 8), _MISSING),
        ],
        3,
    ),
}


@pytest.mark.parametrize("name", LINEARIZABLE)
def test_history_that_is_possible_is_believed(name: str) -> None:
    found = check(LINEARIZABLE[name])
    assert found is None, str(found)


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_history_that_is_impossible_is_refused_with_few_operations(name: str) -> None:
    history, shown = IMPOSSIBLE[name]
    for padding in ([], _beside(1000)):
        found = check([*padding, *history])
        assert found is not None
        assert len(found.operations) <= shown, str(found)


def _beside(count: int) -> list[Operation]:
    """Return possible operations of other clients at the same time, in a directory of their own."""
    return [did("mkdirs", f"other/{number}", (number / 100, number / 100 + 0.005)) for number in range(count)]


_GROUPS, _CLIENTS = 6, 3


def drawn(chance: random.Random, count: int, unknown: float) -> list[Operation]:
    """Return a linearizable history: each operation takes effect on one tree, within its time."""
    tree, history, clock = groups(), [], 0.0
    free = {(group, client): 0.0 for group in range(_GROUPS) for client in range(_CLIENTS)}
    for _ in range(count):
        clock += chance.random()
        (group, client), since = chance.choice(list(free.items()))
        top: Names = (f"g{group}",)
        call = draw(chance, chance.choice([top, top, ("shared",)]), f"v{len(history)}")
        made, outcome = apply(tree, call)
        called, returned = max(since, clock - chance.random() * 4), clock + chance.random() * 4
        free[group, client] = returned
        if called > clock:
            continue
        name = f"{group}.{client}"
        if chance.random() < unknown:
            tree = chance.choice([tree, made])
            history.append(Operation(name, call, called, None, None, over=returned))
        else:
            tree = made
            history.append(Operation(name, call, called, returned, outcome))
    return history


def groups() -> Tree:
    tops = [*(f"g{group}" for group in range(_GROUPS)), "shared"]
    return Tree({(): Node(None)} | {(top,): Node(None) for top in tops})


def test_drawn_histories_are_believed_and_refused_once_an_outcome_is_changed() -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(often(3, 40)):
        history = drawn(chance, 300, unknown=0.05)
        found = check(history, groups())
        assert found is None, str(found)
        # A content that was never written to the file.
        known = [n for n, each in enumerate(history) if each.call.op == "read" and each.returned is not None]
        number = chance.choice(known)
        history[number] = history[number]._replace(outcome="nobody wrote this")
        found = check(history, groups())
        assert found is not None and history[number] in found.operations
        # A change that was acknowledged and lost.
        history = drawn(chance, 300, unknown=0.0)
        lost = chance.randrange(len(history) // 2)
        is_noticed = told(history, lost) != told(history, None)
        assert (check(told(history, lost), groups()) is not None) == is_noticed


def told(history: list[Operation], lost: int | None) -> list[Operation]:
    """Return the outcomes of two successive operations, one of which had no effect."""
    tree = groups()
    replayed = []
    for number, each in enumerate(history):
        after, outcome = apply(tree, each.call)
        replayed.append(each._replace(called=float(number), returned=number + 0.5, outcome=outcome))
        if number != lost:
            tree = after
    return replayed


def test_verdicts_are_those_of_a_search_through_all_orders() -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    verdicts = {True: 0, False: 0}
    for _ in range(often(60, 2000)):
        history = few(chance)
        possible = is_explained(history)
        verdicts[possible] += 1
        found = check(history, Tree({(): Node(None), ("d",): Node(None)}))
        assert (found is None) == possible, (seed, [str(each) for each in history])
    assert min(verdicts.values()) > 5, verdicts


_FEW = (
    Call("create", ("d", "a"), content="1"),
    Call("create", ("d", "a"), content="2", overwrite=True),
    Call("delete", ("d", "a")),
    Call("rename", ("d", "a"), target=("d", "b")),
    Call("rename", ("d", "b"), target=("d", "a"), overwrite=True),
    Call("read", ("d", "a")),
    Call("list", ("d",)),
)


def few(chance: random.Random) -> list[Operation]:
    """Return five operations on two names, with the outcomes of some order. One or two may be exchanged."""
    calls = [chance.choice(_FEW) for _ in range(5)]
    history = []
    for number, call in enumerate(calls):
        tree = Tree({(): Node(None), ("d",): Node(None)})
        before = calls[:number] if chance.random() < 0.8 else chance.sample(_FEW, 3)
        for other in before:
            tree = apply(tree, other)[0]
        called = number + chance.random()
        if chance.random() < 0.2:
            over = chance.choice([math.inf, called + 1])
            history.append(Operation("a", call, called, None, None, over=over))
        else:
            returned = called + chance.random() * 2
            history.append(Operation("a", call, called, returned, apply(tree, call)[1]))
    return history


def is_explained(history: list[Operation]) -> bool:
    """Try every order of all operations with known outcomes and any subset of the others."""
    known = [each for each in history if each.returned is not None]
    unknown = [each for each in history if each.returned is None]
    for count in range(len(unknown) + 1):
        for some in itertools.combinations(unknown, count):
            if any(is_order(order) for order in itertools.permutations([*known, *some])):
                return True
    return False


def is_order(order: tuple[Operation, ...]) -> bool:
    """Return whether operations can have taken effect in this order."""
    tree, latest = Tree({(): Node(None), ("d",): Node(None)}), 0.0
    for each in order:
        # Taking the earliest possible moment leaves most room for later operations.
        latest = max(latest, each.called)
        if latest > (each.over if each.returned is None else each.returned):
            return False
        tree, outcome = apply(tree, each.call)
        if each.returned is not None and outcome != each.outcome:
            return False
    return True


def test_history_of_many_operations_is_decided_in_time_that_grows_with_it() -> None:
    count = often(5_000, 100_000)
    chance = random.Random(20261128)
    history = drawn(chance, count, unknown=0.002)
    began_s = time.process_time()
    found = check(history, groups())
    spent_s = time.process_time() - began_s
    assert found is None, str(found)
    assert spent_s < 60 * len(history) / 100_000 * 4
    assert check([*history, did("read", "shared/none", (1e9, 1e9 + 1), "never")], groups()) is not None
