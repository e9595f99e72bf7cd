"""What a function stores in its state is read back equal and with the same type, or is refused."""

from __future__ import annotations

import collections
import datetime as dt
import enum
import math
import random
from decimal import Decimal
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from oracles.exact_aggregates import key_of
from simulation.seeds import seeds
from support.long_runs import often
from support.unit_states import States

from peacefs.protocol.errors import RecordRefused

_NAN = float("nan")
_ZONES = [None, dt.UTC, dt.timezone(dt.timedelta(hours=-3, microseconds=1)), ZoneInfo("Europe/Berlin")]
Point = collections.namedtuple("Point", "x y")


class Colour(enum.IntEnum):
    RED = 1


def scalar(chance: random.Random) -> Any:
    zone = chance.choice(_ZONES)
    return chance.choice(
        [
            None,
            True,
            chance.choice([0, -1, 2**63, 2**64, -(2**63) - 1, -(10**40)]),
            chance.choice([0.0, -0.0, _NAN, math.inf, 0.1]),
            "é" * chance.randint(0, 40),
            bytes(chance.randint(0, 20)),
            dt.datetime(2026, 10, 25, 2, 30, 0, chance.randint(0, 999_999), zone, fold=chance.randint(0, 1)),
            dt.datetime(chance.choice([1, 9999]), 1, 1),
            dt.date(chance.choice([1, 2026, 9999]), 12, 31),
            dt.time(23, 59, 59, 1, chance.choice(_ZONES[:3]), fold=1),
            dt.timedelta(chance.randint(-999_999_999, 0), microseconds=1),
            Decimal(chance.choice(["1.50", "-0.00", "1E+300", "NaN", "0.1"])),
            frozenset(),
        ]
    )


def value(chance: random.Random, depth: int = 3) -> Any:
    if depth == 0 or chance.random() < 0.4:
        return scalar(chance)
    parts = [value(chance, depth - 1) for _ in range(chance.randint(0, 3))]
    match chance.randint(0, 5):
        case 0:
            return parts
        case 1:
            return tuple(parts)
        case 2:
            return {f"key {at}": part for at, part in enumerate(parts)}
        case 3:
            return {scalar(chance): part for part in parts}
        case 4:
            return {scalar(chance) for _ in parts}
        case _:
            return frozenset(scalar(chance) for _ in parts)


def told(given: Any) -> Any:
    """Return a value with the types of all its parts, so that 1, 1.0 and True differ, and NaN equals itself."""
    kind = type(given)
    if kind in (set, frozenset):
        return kind, sorted(map(repr, map(told, given)))
    if kind in (list, tuple):
        return kind, [told(each) for each in given]
    if kind is dict:
        return kind, [(told(key), told(each)) for key, each in given.items()]
    return kind, repr(given)


@pytest.mark.parametrize("seed", seeds(often(3, 100)))
def test_state_keeps_values_exactly(seed: int) -> None:
    chance = random.Random(seed)
    states = States()
    state = states.begin()
    held = state.mapping("values")
    model = {}
    for number in range(60):
        held[number] = model[number] = value(chance)
        if chance.random() < 0.1:
            state = states.store_and_load(state)
            held = state.mapping("values")
        known = chance.randint(0, number)
        assert told(held[known]) == told(model[known])
    keys = list(model)
    assert [told(each) for each in held.find_all(keys)] == [told(model[key]) for key in keys]


@pytest.mark.parametrize(
    "refused",
    [
        Point(1, 2),
        Colour.RED,
        collections.Counter("a"),
        collections.OrderedDict(a=1),
        bytearray(b"a"),
        memoryview(b"a"),
        np.float64(1.5),
        np.int64(1),
        np.datetime64("2026-01-01"),
        Fraction(1, 3),
        1j,
        "\ud800",
        object(),
        dt.datetime(2026, 1, 1, tzinfo=dt.timezone(dt.timedelta(0), "name")),
        [{"deep": (1, {Point(1, 2)})}],
    ],
    ids=lambda each: type(each).__name__,
)
def test_value_that_would_change_is_refused_and_changes_nothing(refused: Any) -> None:
    held = States().begin().mapping("values")
    held["key"] = "before"
    with pytest.raises(RecordRefused, match="state") as said:
        held["key"] = refused
    assert "\n" not in said.value.message
    assert held["key"] == "before"


def test_value_that_contains_itself_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(RecordRefused, match="contains itself"):
        States().begin().mapping("values")["key"] = circle


def test_keys_are_equal_as_those_of_windows_are() -> None:
    """Null is a key, all NaNs are the same key, and -0.0 equals 0.0. Keys of different types differ."""
    given = [None, 0.0, -0.0, _NAN, -_NAN, 0, False, "0", b"0", (None, -0.0, _NAN), (None, 0.0, -_NAN), Decimal(0)]
    held = States().begin().mapping("counts")
    model: dict[Any, int] = {}
    for key in given:
        held[key] = held.get(key, 0) + 1
        parts = key if isinstance(key, tuple) else (key,)
        place = (type(key), *((type(part), key_of(part)) for part in parts))
        model[place] = model.get(place, 0) + 1
    assert sorted(held.values()) == sorted(model.values())
    assert len(held) == len(model)
    for refused in ([], {}, set(), (1, [])):
        with pytest.raises(RecordRefused, match="cannot be a key"):
            held[refused] = 1


def test_key_is_shown_with_its_type() -> None:
    keys = [None, (1, "a"), ((), (dt.date(2026, 1, 1),)), dt.timedelta(1), Decimal("1.0"), frozenset({1}), 2**70]
    states = States()
    state = states.begin()
    held = state.mapping("values")
    for key in keys:
        held[key] = 1
    shown = list(states.store_and_load(state).mapping("values"))
    assert sorted(map(repr, map(told, shown))) == sorted(map(repr, map(told, keys)))
