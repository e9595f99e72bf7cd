"""Partitioned stages: rows keep their order in all cases, and queries that cannot work are refused."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, MutableMapping
from typing import Any

import pyarrow as pa
import pytest
from support.dataflows import SCHEMA, Row, input_rows

from benchmarks.dataflows.seeded import Kill, SeededRun
from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.core.bounds import Bounds
from peacefs.dataflow.operators.key_hashes import hash_keys, parts_of
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.query.streams import Stream
from peacefs.dataflow.recovery.technique import Technique
from peacefs.dataflow.techniques.active_standby import ActiveStandby
from peacefs.dataflow.techniques.amnesia import Amnesia
from peacefs.dataflow.techniques.sguard import SGuard
from peacefs.protocol.errors import InvalidQuery

_GRAINS = {"grain_rows": 5, "grain": "4s"}


def double(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Make two output rows of each row."""
    order = [at for at in range(rows.num_rows) for _ in (0, 1)]
    return rows.take(pa.array(order, pa.int64()))


def count(rows: pa.RecordBatch, state: MutableMapping[Any, Any]) -> pa.RecordBatch:
    """Give each key's rows numbers."""
    numbers = []
    for key in rows.column("key").to_pylist():
        state[key] = state.get(key, 0) + 1
        numbers.append(state[key])
    return rows.set_column(2, "value", pa.array(numbers, pa.int64()))


_ROW_BY_ROW: list[Callable[[Stream], Stream]] = [
    lambda stream: stream.filter(F.col("value") > 3),
    lambda stream: stream.with_columns(more=F.col("value") + 1),
    lambda stream: stream.map(lambda rows: rows),
    lambda stream: stream.flat_map(double),
    lambda stream: stream.flat_map(double).filter(F.col("value") > 3).flat_map(double),
]


def chain(step: Callable[[Stream], Stream], parts: int = 3) -> Network:
    """Return two partitioned stages; the second is partitioned by another column."""
    query = Query("first")
    stream = query.source("in", SCHEMA, time="at").filter(F.col("value") >= 0)
    stream = step(stream.partition("key", parts=parts, name="stage", **_GRAINS))
    stream.partition("value", parts=2, name="other").filter(F.col("value") >= 0).sink("out")
    return query.network()


def play(network: Network, technique: Technique | None = None, *, seed: int = 1, **how: Any) -> list[Row]:
    size = how.pop("size", 4)
    rows = {
        source.name: input_rows(7 + at, batches=32 // size, size=size, first=at * 1000)
        for at, source in enumerate(network.sources)
    }
    run = SeededRun(network, technique or Amnesia(), rows, seed=seed, **how)
    return run.run().rows("out")


@pytest.mark.parametrize("step", _ROW_BY_ROW, ids=["filter", "select", "map", "flat map", "several"])
def test_partition_and_merge_leave_rows_in_their_order(step: Callable[[Stream], Stream]) -> None:
    """Row-by-row operators give the same rows in the same order as without partitions."""
    query = Query("first")
    step(query.source("in", SCHEMA, time="at")).sink("out")
    expected = play(query.network())
    assert len(expected) > 20
    assert play(chain(step)) == expected


def windows(parts: int | None) -> Network:
    query = Query("first")
    stream = query.source("in", SCHEMA, time="at").filter(F.col("value") >= 0)
    if parts is not None:
        stream = stream.partition("key", parts=parts, name="stage", **_GRAINS)
    stream.key_by("key").window("4s", every="2s").aggregate(F.count(), F.sum("value")).sink("out")
    return query.network()


def joined(parts: int | None) -> Network:
    query = Query("first")
    left = query.source("left", SCHEMA, time="at").select("key", "at", left=F.col("value"))
    right = query.source("right", SCHEMA, time="at").select("key", "at", right=F.col("value"))
    if parts is not None:
        left, right = (each.partition("key", parts=parts, name="stage", **_GRAINS) for each in (left, right))
    left.key_by("key").join(right.key_by("key"), within="2s").sink("out")
    return query.network()


@pytest.mark.parametrize("network", [windows, joined])
def test_partition_gives_the_same_rows_of_each_key(network: Callable[[int | None], Network]) -> None:
    expected = play(network(None))
    observed = play(network(3))
    assert Counter(observed) == Counter(expected)
    assert len(expected) > 10
    for key in "abc":
        assert [row for row in observed if row[0] == key] == [row for row in expected if row[0] == key]


@pytest.mark.parametrize("network", [windows, joined, lambda parts: chain(_ROW_BY_ROW[3], parts)])
def test_partition_order_does_not_depend_on_how_rows_are_cut(network: Callable[[int], Network]) -> None:
    """Rows come in other batches, on links with other delays, with credit for one row at a time."""
    expected = play(network(3))
    for seed, size in ((2, 1), (3, 8), (4, 32)):
        assert play(network(3), seed=seed, size=size, bounds=Bounds(credit_bytes=64)) == expected


@pytest.mark.parametrize("network", [windows, joined])
@pytest.mark.parametrize("technique", [lambda: SGuard(interval_s=0.2), ActiveStandby])
def test_partition_is_recovered_by_techniques_that_know_nothing_of_it(
    technique: Callable[[], Technique], network: Callable[[int], Network]
) -> None:
    expected = play(network(2))
    for step in (60, 220):
        assert play(network(2), technique(), failures=[Kill(step, "node-2")]) == expected


def test_partition_does_not_deadlock_when_all_rows_go_to_one_part() -> None:
    """Buffers hold a row or two: a slow part holds up the others, but not for ever."""
    query = Query("first")
    stream = query.source("in", SCHEMA, time="at").with_columns(one=F.lit(1))
    stream = stream.partition("one", parts=3, name="stage").filter(F.col("value") >= 0)
    stream.partition("key", parts=3, name="other").filter(F.col("value") >= 0).sink("out")
    small = Bounds(credit_bytes=64, buffer_bytes_max=64)
    assert [row[2] for row in play(query.network(), bounds=small)] == list(range(32))


def test_partition_puts_rows_of_set_preserving_operators_into_an_order() -> None:
    """The function gives its rows in an unpredictable order; their columns distinguish them."""
    chance = random.Random()

    def shuffled(rows: pa.RecordBatch, state: MutableMapping[Any, Any]) -> pa.RecordBatch:
        order = list(range(rows.num_rows))
        chance.shuffle(order)
        return rows.take(pa.array(order))

    def network(unique: str) -> Network:
        query = Query("first")
        stream = query.source("in", SCHEMA, time="at").partition("key", parts=2, name="stage", grain_rows=16)
        stream.process(shuffled, deterministic=False, unique=unique).partition("key", parts=2).sink("out")
        return query.network()

    told_apart = [play(network("value")) for _ in range(3)]
    assert told_apart[0] == told_apart[1] == told_apart[2]
    assert len({tuple(play(network(()))) for _ in range(3)}) > 1
    assert network("value").operator_class < network(()).operator_class


def test_partition_of_keys_is_the_same_in_every_process() -> None:
    """The expected partitions are fixed values: after a restart, keys must be in the same partitions."""
    rows = pa.record_batch(
        {
            "text": pa.array(["a", "b", None, "", "a longer one"]),
            "number": pa.array([1, 2, 3, None, -1]),
            "at": pa.array([0, 1, 2, 3, 4], pa.timestamp("us")),
        }
    )
    assert parts_of(rows, ["text", "number"], 1000).tolist() == [512, 825, 949, 67, 561]
    even = pa.record_batch({"number": pa.array(range(10_000))})
    shares = Counter(parts_of(even, ["number"], 4).tolist())
    assert set(shares) == {0, 1, 2, 3} and max(shares.values()) < 1.1 * min(shares.values())
    assert list(hash_keys(rows.slice(3), ["text", "number"])) == list(hash_keys(rows, ["text", "number"])[3:])


def _stream() -> Stream:
    return Query("first").source("in", {**dict.fromkeys(("key", "other"), "string"), "at": "timestamp"}, time="at")


_REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: _stream().partition(parts=2), "partition needs a column"),
    (lambda: _stream().partition("key", parts=0), "from 1 to 1024"),
    (lambda: _stream().partition("key", parts=2, grain_rows=0), "1 or more"),
    (lambda: _stream().partition("no", parts=2), "needs a column 'no'"),
    (lambda: _stream().merge("out"), "there is none"),
    (lambda: _stream().partition("key", parts=2, name="s").merge("s"), "not partitioned"),
    (lambda: _stream().partition("key", parts=2).key_by("other").window("1s").aggregate(F.count()), "'key'"),
    (
        lambda: (
            _stream()
            .partition("key", parts=2)
            .key_by("key")
            .window("1s", timeout="1s")
            .aggregate(F.count())
            .sink("out")
            .network()
        ),
        "with a timeout, idle inputs or timers of the clock cannot be partitioned",
    ),
    (lambda: _stream().partition("key", parts=2).union(_stream()), "two queries"),
    (lambda: _unlike(), "not partitioned alike"),
    (lambda: _stream().partition("key", parts=2, name="first"), "has a unit 'first' already"),
    (
        lambda: _stream().partition("key", parts=2).process(count, unique="no").sink("out").network(),
        "which is not in its rows",
    ),
]


def _unlike() -> object:
    stream = _stream()
    return stream.partition("key", parts=2, name="a").union(stream.partition("key", parts=3, name="b"))


@pytest.mark.parametrize(("query", "message"), _REFUSED, ids=[message for _, message in _REFUSED])
def test_partition_that_cannot_work_is_refused_in_a_line(query: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidQuery, match=message) as refused:
        query()
    assert "\n" not in refused.value.message
