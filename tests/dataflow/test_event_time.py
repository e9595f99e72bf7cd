"""Sources declare how late their rows may be, when they are idle, and which rows are too far ahead."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation.seeds import seeds
from support.long_runs import often
from support.operator_runs import operator_of, run_operator
from support.unit_states import States

from benchmarks.dataflows.costs import VirtualTimes
from benchmarks.dataflows.failures import Kill
from benchmarks.dataflows.outcome import Outcome
from benchmarks.dataflows.seeded import SeededRun
from peacefs.dataflow import KeyedFunction, ListOf, Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.model.operator import Operator
from peacefs.dataflow.operators.keyed_process import KeyedContext
from peacefs.dataflow.operators.source_times import SourceTimes, dataflow_rows_ahead
from peacefs.dataflow.query.network import Network, OperatorNode
from peacefs.dataflow.query.streams import Stream
from peacefs.dataflow.recovery.technique import Technique
from peacefs.dataflow.techniques.active_standby import ActiveStandby
from peacefs.dataflow.techniques.amnesia import Amnesia
from peacefs.dataflow.techniques.passive_standby import PassiveStandby
from peacefs.dataflow.techniques.sguard import SGuard
from peacefs.dataflow.unit_state.operator_state import OperatorState
from peacefs.protocol.errors import InvalidQuery

_SCHEMA = pa.schema([("key", pa.string()), ("at", pa.timestamp("us")), ("value", pa.int64())])
_S = 1_000_000
Rows = list[tuple[str, int, int]]


def batch_of(rows: Rows) -> pa.RecordBatch:
    keys, times, values = zip(*rows, strict=True) if rows else ([], [], [])
    seconds = pa.array([at * _S for at in times], pa.int64()).cast(pa.timestamp("us"))
    return pa.RecordBatch.from_arrays(
        [pa.array(keys, pa.string()), seconds, pa.array(values, pa.int64())], schema=_SCHEMA
    )


def tuples(table: pa.Table, time: str = "at", value: str = "value") -> Rows:
    times = [at // _S for at in table.column(time).cast(pa.int64()).to_pylist()]
    return list(zip(table.column("key").to_pylist(), times, table.column(value).to_pylist(), strict=True))


def cut(rows: Rows, size: int) -> list[pa.RecordBatch]:
    batches: list[pa.RecordBatch] = pa.Table.from_batches([batch_of(rows)]).to_batches(max_chunksize=size)
    return batches


def shuffled(chance: random.Random, count: int, late: int) -> Rows:
    """Return rows of which none is more than `late` seconds older than a row before it."""
    times = sorted(chance.randint(0, count) for _ in range(count))
    rows = [(chance.choice("abc"), at, number) for number, at in enumerate(times)]
    return sorted(rows, key=lambda row: row[1] + chance.randint(0, late))


# -- lateness -------------------------------------------------------------------------------------------


_LATENESS: dict[str, Callable[[Stream, Stream], Stream]] = {
    "window": lambda a, b: a.key_by("key").window("5s").aggregate(F.sum("value")),
    "sessions": lambda a, b: a.key_by("key").session_window("3s").aggregate(F.sum("value")),
    "union": lambda a, b: a.union(b).key_by("key").window("5s").aggregate(F.sum("value")),
    "join": lambda a, b: a.key_by("key").join(b.select("key", "at", other=F.col("value")).key_by("key"), "4s"),
    "full": lambda a, b: (
        a.key_by("key")
        .join(b.select("key", "at", other=F.col("value")).key_by("key"), between=("-4s", "1s"), how="full")
        .with_columns(value=pa.compute.coalesce(F.col("value"), F.col("other")))
        .key_by("key")
        .window("5s")
        .aggregate(F.sum("value"))
    ),
}


@pytest.mark.parametrize("seed", seeds(often(2, 40)))
@pytest.mark.parametrize("name", _LATENESS)
def test_rows_within_the_declared_lateness_count_as_if_they_were_in_order(name: str, seed: int) -> None:
    chance = random.Random(seed)
    inputs = [shuffled(chance, 60, 8) for _ in range(2)]
    made = []
    for rows in (inputs, [sorted(each, key=lambda row: row[1]) for each in inputs]):
        query = Query("late")
        streams = [query.source(side, _SCHEMA, time="at", lateness="8s") for side in ("a", "b")]
        _LATENESS[name](*streams).sink("out")
        if name in ("window", "sessions"):
            streams[1].sink("unused")
        batches = {side: cut(each, 7) for side, each in zip("ab", rows, strict=True)}
        outcome = SeededRun(query.network(), Amnesia(), batches, seed=seed).run()
        assert outcome.late.by_operator() == {}
        made.append(sorted(map(str, outcome.rows("out"))))
    assert made[0] == made[1]


# -- rows far ahead -----------------------------------------------------------------------------------------


def ahead_model(times: list[int], bound: int) -> list[bool]:
    """Return which rows are accepted, by the words of the guide."""
    accepted: list[bool] = []
    seen: list[int] = []
    agree: list[int] = []
    for at in times:
        if not seen or at <= max(seen) + bound:
            agree = []
        else:
            agree = [*agree, at] if agree and abs(at - agree[-1]) <= bound else [at]
        believed = not agree or len(agree) == dataflow_rows_ahead
        accepted.append(believed)
        if believed:
            seen.append(at)
            agree = []
    return accepted


@settings(max_examples=often(60, 600), deadline=None)
@given(
    st.lists(st.one_of(st.integers(0, 30), st.integers(900, 930), st.just(10**6)), min_size=1, max_size=120),
    st.integers(0, 3),
)
def test_rows_far_ahead_are_rejected_as_a_model_rejects_them(times: list[int], size: int) -> None:
    node = operator_of(lambda stream: stream.query.source("far", _SCHEMA, time="at", ahead="60s"), _SCHEMA)
    assert isinstance(node.specification, SourceTimes)
    rows: Rows = [("a", at, number) for number, at in enumerate(times)]
    made = run_operator(node, batch_of(rows), chance=random.Random(size) if size else None)
    accepted = ahead_model(times, 60)
    assert tuples(made) == [row for row, is_in in zip(rows, accepted, strict=True) if is_in]


def test_one_row_far_in_the_future_closes_no_window_and_is_counted() -> None:
    rows: Rows = [("a", at, 1) for at in range(20)]
    rows.insert(7, ("a", 10**8, 1))
    query = Query("far")
    events = query.source("in", _SCHEMA, time="at", ahead="1 day")
    events.key_by("key").window("10s").aggregate(F.sum("value")).sink("out")
    events.late().sink("odd")
    batches = {"in": cut(rows, 4)}
    for failures in ([], [Kill(30, "node-1")]):
        outcome = SeededRun(query.network(), SGuard(interval_s=0.1), batches, seed=1, failures=failures).run()
        assert outcome.late.by_operator() == {"in times": 1}
        windows = pa.Table.from_batches(outcome.sinks["out"])
        assert tuples(windows, "window_end", "sum_value") == [("a", 10, 10), ("a", 20, 10)]
        assert tuples(pa.Table.from_batches(outcome.sinks["odd"])) == [("a", 10**8, 1)]


# -- side outputs ---------------------------------------------------------------------------------------------


_SIDES: dict[str, Callable[[Stream], Stream]] = {
    "window": lambda s: s.key_by("key").window("4s", every="2s", lateness="1s").aggregate(F.sum("value")),
    "sessions": lambda s: s.key_by("key").session_window("3s").aggregate(F.sum("value")),
    "sort": lambda s: s.sort("2s"),
}


def left_out_model(name: str, rows: Rows) -> Rows:
    """Return the late rows, one by one."""
    latest, late = -(10**9), []
    sessions: dict[str, list[list[int]]] = {}
    for row in rows:
        key, at, _ = row
        latest = max(latest, at)
        if name == "window" and at < (latest - 1 - 4) // 2 * 2 + 4:
            late.append(row)
        if name == "sort" and at < latest - 2:
            late.append(row)
        if name == "sessions":
            of_key = sessions.setdefault(key, [])
            near = [each for each in of_key if each[1] + 3 > latest and each[0] - 3 < at < each[1] + 3]
            if not near and at + 3 <= latest:
                late.append(row)
                continue
            for each in near:
                of_key.remove(each)
            of_key.append([min([at, *(each[0] for each in near)]), max([at, *(each[1] for each in near)])])
    return late


@pytest.mark.parametrize("seed", seeds(often(2, 60)))
@pytest.mark.parametrize("name", _SIDES)
def test_late_rows_leave_by_the_side_output(name: str, seed: int) -> None:
    rows = shuffled(random.Random(seed), 80, 9)
    query = Query("side")
    main = _SIDES[name](query.source("in", _SCHEMA, time="at"))
    main.sink("out")
    main.late().sink("late")
    expected = left_out_model(name, rows)
    assert expected
    for failures in ([], [Kill(30, "node-1"), Kill(60, "node-2")]):
        given = {"in": cut(rows, 5)}
        outcome = SeededRun(query.network(), SGuard(interval_s=0.1), given, seed=seed, failures=failures).run()
        assert tuples(pa.Table.from_batches(outcome.sinks["late"])) == expected
        assert outcome.late.by_operator() == {main.name: len(expected)}


# -- idle inputs ---------------------------------------------------------------------------------------------


def started(node: OperatorNode) -> Operator:
    return node.specification.start(node.input_types, OperatorState(States().begin(), node.name))


def idle_union(left: Stream, right: Stream) -> Stream:
    return left.union(right).sort("0s")


def declared(write: Callable[[Stream, Stream], Stream]) -> Network:
    query = Query("idle")
    left = query.source("left", _SCHEMA, time="at", idle="2s")
    right = query.source("right", _SCHEMA, time="at", idle="2s")
    write(left, right).sink("out")
    return query.network()


def passed(batches: Any) -> Rows:
    return [row for batch in batches for row in tuples(pa.Table.from_batches([batch]))]


@pytest.mark.parametrize("quiet", [0, 1])
def test_idle_input_of_a_union_holds_the_other_back_for_its_declared_time_only(quiet: int) -> None:
    union = started(declared(idle_union).operators[0])
    busy = 1 - quiet
    assert passed(union.process(busy, batch_of([("a", 5, 1), ("a", 9, 2)]))) == []
    assert passed(union.on_time(10 * _S)) == []
    assert passed(union.process(busy, batch_of([("a", 10, 3)]))) == []
    assert passed(union.on_time(11 * _S)) == []
    assert passed(union.on_time(12 * _S)) == [("a", 5, 1), ("a", 9, 2), ("a", 10, 3)]
    # It comes back: late rows pass as they are, and it holds the other back again.
    assert passed(union.process(quiet, batch_of([("b", 7, 4)]))) == []
    assert passed(union.process(busy, batch_of([("a", 30, 5)]))) == [("b", 7, 4)]
    assert passed(union.on_time(13 * _S)) == []
    assert passed(union.process(quiet, batch_of([("b", 31, 6)]))) == [("a", 30, 5)]


def test_inputs_that_are_all_idle_hold_nothing_back() -> None:
    union = started(declared(idle_union).operators[0])
    assert passed(union.process(0, batch_of([("a", 5, 1)]))) == []
    assert passed(union.process(1, batch_of([("b", 9, 2)]))) == [("a", 5, 1)]
    assert passed(union.on_time(0)) == []
    assert passed(union.on_time(2 * _S)) == [("b", 9, 2)]
    for second in range(3, 9):
        assert passed(union.on_time(second * _S)) == []
    assert passed(union.process(1, batch_of([("b", 10, 3)]))) == []


def idle_join(left: Stream, right: Stream) -> Stream:
    return left.key_by("key").join(right.select("key", "at", other=F.col("value")).key_by("key"), "4s", how="left")


def idle_table(left: Stream, right: Stream) -> Stream:
    return left.key_by("key").join_table(right.select("key", "at", other=F.col("value")).key_by("key"), how="left")


@pytest.mark.parametrize("write", [idle_join, idle_table])
def test_idle_input_of_a_join_holds_the_other_back_for_its_declared_time_only(
    write: Callable[..., Stream],
) -> None:
    join = started(declared(write).operators[-1])
    other = batch_of([("a", 3, 7)]).rename_columns(["key", "at", "other"])
    assert passed(join.process(1, other)) == []
    assert passed(join.process(0, batch_of([("a", 5, 1), ("b", 6, 2), ("c", 99, 3)]))) in ([], [("a", 5, 1)])
    assert passed(join.on_time(0)) == []
    made = passed(join.on_time(2 * _S))
    assert ("b", 6, 2) in made


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"lateness": 3}, "source\\(lateness\\) is 3"),
        ({"idle": "0s"}, "source\\(idle\\) is '0s': it must be longer"),
        ({"ahead": "far"}, "source\\(ahead\\) is 'far'"),
    ],
)
def test_declaration_that_is_wrong_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidQuery, match=said):
        Query("q").source("in", _SCHEMA, time="at", **given)


def test_stream_without_late_rows_has_no_side_output() -> None:
    with pytest.raises(InvalidQuery, match="'filter-1' leaves out no rows"):
        Query("q").source("in", _SCHEMA, time="at").filter(F.col("value") > 1).late()


@pytest.mark.cluster
def test_source_that_says_nothing_holds_a_running_query_back_for_its_declared_time(tmp_path: Path) -> None:
    """The other source goes on while one of them waits, and gets its rows out."""
    made: list[Any] = []
    found = threading.Event()

    def silent() -> Iterator[pa.RecordBatch]:
        found.wait(120)
        yield batch_of([("b", 100, 9)])

    def sink(rows: pa.RecordBatch) -> None:
        made.extend(passed([rows]))
        found.set()

    network = declared(idle_union)
    rows: Rows = [("a", 1, 1), ("a", 2, 2), ("a", 3, 3)]
    host = LocalProcesses(nodes=1, checkpoints=DirectoryCheckpoints(tmp_path), node_timeout_s=60)
    given = {"left": cut(rows, 1), "right": silent()}
    with host.start(network, SGuard(interval_s=0.5), given, {"out": sink}) as run:
        assert found.wait(100), "the silent source held the query back"
        run.wait(100)
    assert made == [*rows, ("b", 100, 9)]


# -- global windows ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trigger", [{"rows": 2}, {"every": "9s"}, {"rows": 2, "purge": True}])
def test_global_window_shows_keys_as_they_are_compared(trigger: dict[str, Any]) -> None:
    kind = _SCHEMA.set(0, pa.field("key", pa.float64()))
    rows = [{"key": key, "at": datetime(1969, 12, 31), "value": 1} for key in (-0.0, 0.0, -math.nan, math.nan)]
    node = operator_of(lambda s: s.key_by("key").global_window(**trigger).aggregate(F.sum("value")), kind)
    made = run_operator(node, pa.RecordBatch.from_pylist(rows, kind)).to_pylist()
    assert [(str(row["key"]), row["sum_value"]) for row in made] == [("0.0", 2), ("nan", 2)]


# -- clocks, with nodes killed ------------------------------------------------------------------------------------


class Collected(KeyedFunction):
    """Emits the values of a key some time of the clock after the first of them, and the rest at the end."""

    states: ClassVar = {"values": ListOf("int64")}
    uses_clock = True

    def on_row(self, key: str, row: dict[str, Any], context: KeyedContext) -> None:
        context.list("values").append(row["value"])
        context.after("150ms")

    def on_clock(self, key: str, context: KeyedContext) -> Iterator[dict[str, Any]]:
        for value in context.list("values"):
            yield {"key": key, "at": context.watermark, "value": value}
        context.list("values").clear()

    on_end = on_clock


@pytest.mark.parametrize(
    "technique",
    [partial(SGuard, interval_s=0.1), ActiveStandby, PassiveStandby],
    ids=["SGuard", "active", "passive"],
)
def test_idle_sources_clock_timers_and_clock_triggers_lose_and_repeat_nothing(
    technique: Callable[[], Technique],
) -> None:
    query = Query("clocks")
    left, right = (query.source(side, _SCHEMA, time="at", idle="60ms") for side in ("left", "right"))
    both = left.union(right).sort("0s")
    both.sink("both")
    both.late().sink("late")
    left.key_by("key").process(Collected(), _SCHEMA).sink("collected")
    totals = left.key_by("key").global_window(clock="100ms", purge=True).aggregate(F.sum("value"), F.count())
    totals.sink("totals")
    rows = {side: shuffled(random.Random(side), 60, 0) for side in ("left", "right")}
    rows["right"] = [(key, at, value + 100) for key, at, value in rows["right"]]
    given = {side: cut(each, 4) for side, each in rows.items()}

    def played(*failures: Kill) -> tuple[Outcome, dict[str, pa.Table]]:
        times = VirtualTimes(rows_every_s=0.1)
        outcome = SeededRun(query.network(), technique(), given, seed=4, failures=failures, times=times).run()
        made = {name: pa.Table.from_batches(batches) for name, batches in outcome.sinks.items() if batches}
        return outcome, made

    calm, made = played()
    assert "late" in made, "no source was idle"
    assert made["totals"].num_rows > 6, "no trigger fired before the end"
    recoveries = 0
    for step in range(20, calm.steps, calm.steps // often(6, 60)):
        outcome, made = played(Kill(step, f"node-{step % 3 + 1}"))
        recoveries += outcome.recoveries
        passed_on = tuples(pa.concat_tables([made[name] for name in ("both", "late") if name in made]))
        assert sorted(passed_on) == sorted(rows["left"] + rows["right"]), step
        for key in "abc":
            values = [value for each, _, value in rows["left"] if each == key]
            assert [value for each, _, value in tuples(made["collected"]) if each == key] == values, step
            of_key = made["totals"].filter(F.col("key") == key)
            assert (sum(of_key["sum_value"].to_pylist()), sum(of_key["count"].to_pylist())) == (
                sum(values),
                len(values),
            ), step
    assert recoveries
