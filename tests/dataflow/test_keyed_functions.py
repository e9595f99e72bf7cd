"""Functions with states and timers of each key, compared with models that go through the rows one by one."""

from __future__ import annotations

import math
import random
import tracemalloc
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from simulation.seeds import seeds
from support.long_runs import often
from support.operator_runs import operator_of, run_operator
from support.unit_states import States

from peacefs.dataflow import KeyedFunction, ListOf, MapOf, Value
from peacefs.dataflow.hosts.query_record import new_record
from peacefs.dataflow.operators.keyed_process import KeyedContext
from peacefs.dataflow.operators.keyed_store import EVENT, Timers
from peacefs.dataflow.query.query import Query
from peacefs.dataflow.unit_state.operator_state import OperatorState
from peacefs.protocol.errors import InvalidQuery

_NOON = datetime(2026, 1, 1, 12)
_SCHEMA = pa.schema([("key", pa.string()), ("at", pa.timestamp("us")), ("value", pa.int64())])
Rows = list[tuple[str, int, int]]


def batch_of(rows: Rows) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{"key": key, "at": _NOON + timedelta(seconds=at), "value": value} for key, at, value in rows], _SCHEMA
    )


def drawn(chance: random.Random, count: int) -> Rows:
    at, rows = 0, []
    for number in range(count):
        at += chance.choice([0, 1, 2, 9])
        rows.append((chance.choice("abc"), at, number))
    return rows


def made_by(function: KeyedFunction, rows: Rows, chance: random.Random | None = None) -> list[tuple[Any, ...]]:
    """Return the rows of a function. With `chance`, cut the input, and store and load the state between pieces."""
    node = operator_of(lambda stream: stream.key_by("key").process(function, _SCHEMA), _SCHEMA)
    made = run_operator(node, batch_of(rows), chance=chance).to_pylist()
    return [(row["key"], (row["at"] - _NOON) // timedelta(seconds=1), row["value"]) for row in made]


class Remembering(KeyedFunction):
    """Emits how many values of the last ten seconds the key has had, by each kind of state."""

    states: ClassVar = {
        "sum": Value("int64", default=0, ttl="10s"),
        "values": ListOf("int64", ttl="10s"),
        "times": MapOf("int64", "timestamp", ttl="10s"),
    }

    def on_row(self, key: str, row: dict[str, Any], context: KeyedContext) -> Iterator[dict[str, Any]]:
        values, times, total = context.list("values"), context.map("times"), context.value("sum")
        values.append(row["value"])
        times[row["value"]] = row["at"]
        total.set(total.get() + row["value"])
        assert sum(values) == sum(times) == total.get()
        assert list(times.values())[-1] == row["at"]
        yield {**row, "value": len(values) * 1000 + len(times)}

    def on_end(self, key: str, context: KeyedContext) -> Iterator[dict[str, Any]]:
        yield {"key": key, "at": context.watermark, "value": len(context.list("values"))}


def remembering_model(rows: Rows) -> list[tuple[Any, ...]]:
    """Model states that are gone ten seconds after their last change."""
    counts: dict[str, tuple[int, int]] = {}
    made = []
    for key, at, _ in rows:
        count, last = counts.get(key, (0, at))
        count = count + 1 if at < last + 10 else 1
        counts[key] = (count, at)
        made.append((key, at, count * 1001))
    end = rows[-1][1]
    return made + [(key, end, count) for key, (count, last) in sorted(counts.items()) if end < last + 10]


@pytest.mark.parametrize("seed", seeds(often(3, 60)))
def test_states_live_as_long_as_a_model_says(seed: int) -> None:
    rows = drawn(random.Random(seed), 120)
    assert made_by(Remembering(), rows, random.Random(seed)) == remembering_model(rows)


class Alarms(KeyedFunction):
    """Sets a timer `value % 7` seconds after each row; a value that divides by five removes it again."""

    states: ClassVar = {"fired": Value("int64", default=0)}

    def on_row(self, key: str, row: dict[str, Any], context: KeyedContext) -> None:
        at = row["at"] + timedelta(seconds=row["value"] % 7)
        context.timer(at)
        if row["value"] % 5 == 0:
            context.cancel(at)

    def on_timer(self, key: str, at: datetime, context: KeyedContext) -> Iterable[dict[str, Any]]:
        context.value("fired").set(context.value("fired").get() + 1)
        return [{"key": key, "at": at, "value": context.value("fired").get()}]


def alarms_model(rows: Rows) -> list[tuple[Any, ...]]:
    """Model timers that fire in the order of times and keys, before the first row beyond them."""
    timers: set[tuple[int, str]] = set()
    fired: dict[str, int] = {}
    made = []
    for key, at, value in [*rows, (None, 10**6, 0)]:
        for due in sorted(each for each in timers if each[0] < at):
            timers.remove(due)
            fired[due[1]] = fired.get(due[1], 0) + 1
            made.append((due[1], due[0], fired[due[1]]))
        if key is not None:
            timers.add((at + value % 7, key))
            if value % 5 == 0:
                timers.remove((at + value % 7, key))
    return made


@pytest.mark.parametrize("seed", seeds(often(3, 60)))
def test_timers_fire_as_a_model_says(seed: int) -> None:
    rows = drawn(random.Random(seed), 120)
    assert made_by(Alarms(), rows, random.Random(seed)) == alarms_model(rows)


def test_timer_of_a_key_that_is_nan_can_be_removed_after_a_restart() -> None:
    kind = _SCHEMA.set(0, pa.field("key", pa.float64()))
    node = operator_of(lambda stream: stream.key_by("key").process(Alarms(), kind), kind)
    times = [_NOON + timedelta(seconds=at) for at in (2, 3)]
    rows = [{"key": math.nan, "at": at, "value": value} for at, value in zip(times, (6, 5), strict=True)]
    first, second = (pa.RecordBatch.from_pylist([row], kind) for row in rows)
    states = States()
    state = states.begin()
    list(node.specification.start(node.input_types, OperatorState(state, "alarms")).process(0, first))
    operator = node.specification.start(node.input_types, OperatorState(states.store_and_load(state), "alarms"))
    # The second row sets the timer of the first one again, for 8 s, and removes it.
    assert [*operator.process(0, second), *operator.end(0)] == []


class Again(KeyedFunction):
    def on_row(self, key: str, row: dict[str, Any], context: KeyedContext) -> None:
        context.timer(row["at"])

    def on_timer(self, key: str, at: datetime, context: KeyedContext) -> Iterator[dict[str, Any]]:
        context.timer(at + timedelta(seconds=60))
        yield {"key": key, "at": at, "value": 0}


def test_timer_that_is_set_at_the_end_of_the_stream_does_not_fire() -> None:
    made = made_by(Again(), [("a", 0, 0), ("a", 70, 0)])
    assert made == [("a", at, 0) for at in (0, 60, 70, 120)]


class Ending(KeyedFunction):
    """Keeps a value for ten seconds, and an empty list; sets a timer a minute after each row of `a`."""

    states: ClassVar = {"kept": Value("int64", ttl="10s"), "none": ListOf()}

    def on_row(self, key: str, row: dict[str, Any], context: KeyedContext) -> None:
        context.list("none").extend([])
        if row["value"]:
            context.value("kept").set(row["value"])
        if key == "a":
            context.timer(row["at"] + timedelta(seconds=60))

    def on_end(self, key: str, context: KeyedContext) -> Iterator[dict[str, Any]]:
        yield {"key": key, "at": context.watermark, "value": context.value("kept").get()}


@pytest.mark.parametrize(
    ("rows", "ended"),
    [
        ([("b", 0, 1), ("b", 9, 2), ("c", 9, 0)], [("b", 9, 2)]),
        ([("b", 0, 1), ("c", 10, 2)], [("c", 10, 2)]),
        # The timer at 60 s comes before `on_end`.
        ([("a", 0, 1), ("b", 49, 2)], []),
        ([("a", 0, 1), ("b", 51, 2)], [("b", 60, 2)]),
    ],
)
def test_only_keys_with_a_state_are_told_of_the_end(rows: Rows, ended: list[tuple[Any, ...]]) -> None:
    assert made_by(Ending(), rows) == ended


def test_cancelled_timers_take_no_memory() -> None:
    timers = Timers(OperatorState(States().begin(), "timers"))
    tracemalloc.start()
    for time_us in range(20_000):
        timers.set(("a",), EVENT, 10**9 + time_us)
        timers.cancel(("a",), EVENT, 10**9 + time_us - 1)
        if time_us % 100 == 99:
            timers.flush()
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert timers.pending(EVENT) == [(10**9 + 19_999, ("a",))]
    assert held_bytes < 1_000_000


class Clock(KeyedFunction):
    states: ClassVar = {"rows": ListOf("int64")}
    uses_clock = True

    def on_row(self, key: str, row: dict[str, Any], context: KeyedContext) -> None:
        context.list("rows").append(row["value"])
        context.after("5s")

    def on_clock(self, key: str, context: KeyedContext) -> Iterator[dict[str, Any]]:
        yield {"key": key, "at": context.watermark, "value": sum(context.list("rows"))}


def test_timers_of_the_clock_count_the_time_that_the_query_runs() -> None:
    node = operator_of(lambda stream: stream.key_by("key").process(Clock(), _SCHEMA), _SCHEMA)
    states = States()
    state = states.begin()
    operator = node.specification.start(node.input_types, OperatorState(state, "clock"))
    assert list(operator.on_time(1_000_000_000)) == []
    list(operator.process(0, batch_of([("a", 0, 3), ("b", 1, 4)])))
    assert list(operator.on_time(1_004_000_000)) == []
    # Another process, whose clock has another beginning, goes on.
    operator = node.specification.start(node.input_types, OperatorState(states.store_and_load(state), "clock"))
    assert list(operator.on_time(7_000_000)) == []
    assert list(operator.on_time(7_900_000)) == []
    (made,) = operator.on_time(8_000_000)
    assert made.to_pylist() == [
        {"key": key, "at": _NOON + timedelta(seconds=1), "value": value} for key, value in (("a", 3), ("b", 4))
    ]


class Keeping(KeyedFunction):
    states: ClassVar = {"any": Value(), "exact": Value("int64")}

    def __init__(self, name: str, value: Any) -> None:
        self._name, self._value = name, value

    def on_row(self, key: str, row: dict[str, Any], context: KeyedContext) -> Iterator[dict[str, Any]]:
        kept = context.value(self._name)
        if row["value"]:
            assert type(kept.get()) is type(self._value) and kept.get() == self._value
        kept.set(self._value)
        yield row


@pytest.mark.parametrize("value", [Decimal("1.10"), {1, 2}, (1, [2]), datetime(2026, 1, 1), 2**70, {"a": b"b"}])
def test_values_come_back_as_they_were(value: Any) -> None:
    rows = [("a", at, int(at > 0)) for at in range(40)]
    assert len(made_by(Keeping("any", value), rows, random.Random(2))) == 40


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("exact", 1.0, "1.0 cannot be kept in a state of type int64 as it is"),
        ("exact", True, "True cannot be kept in a state of type int64"),
        ("exact", 2**63, "cannot be kept in a state of type int64"),
        ("any", object, "cannot keep a value of type"),
        ("none", 1, "no state 'none' is declared as Value"),
    ],
)
def test_value_that_cannot_be_kept_exactly_is_refused(name: str, value: Any, said: str) -> None:
    with pytest.raises(Exception, match=said):
        made_by(Keeping(name, value), [("a", 0, 0)])


class Wrong(KeyedFunction):
    def on_row(self, key: str, row: dict[str, Any], context: KeyedContext) -> list[dict[str, Any]]:
        return [{"key": key}]


def test_rows_with_other_columns_are_refused() -> None:
    with pytest.raises(TypeError, match=r"Wrong returned \{'key': 'a'\}: a dict with 'key', 'at', 'value'"):
        made_by(Wrong(), [("a", 0, 0)])


def network_with(**states: Any) -> Any:
    class Changing(KeyedFunction):
        pass

    Changing.states = states
    query = Query("changing")
    query.source("in", _SCHEMA, time="at").key_by("key").process(Changing(), _SCHEMA).sink("out")
    return query.network()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"n": Value("int64"), "more": Value("string", default="")}, None),
        ({"n": Value("int64"), "more": ListOf("string")}, None),
        (
            {"n": Value("int64"), "more": Value("string")},
            "state 'more' of .* was added without a default",
        ),
        ({"n": Value("int32")}, "state 'n' of 'process-1' was value of int64 and is value of int32"),
        ({"n": Value("int64", ttl="1s")}, "is value of int64, gone after 1000000 us"),
        ({"m": Value("int64", default=0)}, "state 'n' of 'process-1' was value of int64 and is not there"),
    ],
)
def test_only_a_state_with_a_default_can_be_added_to_a_query(changed: dict[str, Any], said: str | None) -> None:
    record = new_record(network_with(n=Value("int64")), "sguard")
    if said is None:
        record.check(network_with(**changed), "sguard")
        return
    with pytest.raises(InvalidQuery, match=said):
        record.check(network_with(**changed), "sguard")


def test_state_that_was_added_has_its_default_for_keys_from_before() -> None:
    class Before(KeyedFunction):
        states: ClassVar = {"n": Value("int64", default=0)}

        def on_row(self, key: str, row: dict[str, Any], context: KeyedContext) -> None:
            context.value("n").set(row["value"])

    class After(KeyedFunction):
        states: ClassVar = {**Before.states, "more": Value("int64", default=100), "list": ListOf()}

        def on_row(self, key: str, row: dict[str, Any], context: KeyedContext) -> Iterator[dict[str, Any]]:
            yield {
                **row,
                "value": context.value("n").get() + context.value("more").get() + len(context.list("list")),
            }

    states = States()
    state = states.begin()
    node = operator_of(lambda stream: stream.key_by("key").process(Before(), _SCHEMA), _SCHEMA)
    list(node.specification.start(node.input_types, OperatorState(state, "f")).process(0, batch_of([("a", 0, 7)])))
    node = operator_of(lambda stream: stream.key_by("key").process(After(), _SCHEMA), _SCHEMA)
    after = node.specification.start(node.input_types, OperatorState(states.store_and_load(state), "f"))
    (made,) = after.process(0, batch_of([("a", 1, 0)]))
    assert made.column("value").to_pylist() == [107]


@pytest.mark.parametrize(
    ("states", "said"),
    [
        ({"n": int}, "declare it as Value"),
        ({"n": Value("integers")}, "unknown type 'integers'"),
        ({"n": Value("int64", default="a")}, "the default of state 'n' does not fit"),
        ({"n": Value(ttl="soon")}, "ttl is 'soon'"),
    ],
)
def test_state_that_is_declared_wrongly_is_refused(states: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidQuery, match=said):
        network_with(**states)
