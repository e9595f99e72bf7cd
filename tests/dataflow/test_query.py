"""Queries describe themselves, and report mistakes as soon as they are written."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.query.streams import Stream
from peacefs.protocol.errors import InvalidQuery

_SCHEMA = {"address": "string", "at": "timestamp", "ok": "bool", "bytes": "long"}


def events(query: Query, name: str = "events") -> Stream:
    return query.source(name, _SCHEMA, time="at")


def test_query_reads_as_it_runs() -> None:
    query = Query("logins")
    (
        events(query)
        .filter(~F.col("ok"))
        .key_by("address")
        .window("60s", every="1s")
        .aggregate(F.count(), largest=F.max("bytes"))
        .filter(F.col("count") > 10)
        .sink("attacks")
    )
    network = query.network()
    assert [operator.name for operator in network.operators] == ["filter-1", "aggregate-1", "filter-2"]
    (sink,) = network.sinks
    assert sink.type.schema.names == ["address", "window_start", "window_end", "count", "largest"]
    assert sink.type.time == "window_end"
    assert [plan.name for plan in network.units] == ["logins"]


def test_unit_is_cut_where_it_is_named() -> None:
    query = Query("logins")
    failed = events(query).filter(~F.col("ok"))
    failed.unit("windows").key_by("address").window("60s").aggregate(F.count()).sink("counts")
    failed.sink("all")
    network = query.network()
    first, second = network.units
    assert (first.name, first.inputs, first.outputs) == ("logins", ("events",), ("filter-1",))
    assert (second.name, second.inputs, second.outputs) == ("windows", ("filter-1",), ("aggregate-1",))
    assert set(network.consumers["filter-1"]) == {"windows", "sink all"}


_CLASSES: list[tuple[OperatorClass, Callable[[Stream, Stream], Stream]]] = [
    (OperatorClass.REPEATABLE, lambda a, b: a.filter(F.col("ok")).select("at", "address")),
    (
        OperatorClass.REPEATABLE,
        lambda a, b: a.key_by("address").join(b.select("at", "address").key_by("address"), "5s"),
    ),
    (OperatorClass.CONVERGENT_CAPABLE, lambda a, b: a.sort(within="1s")),
    (OperatorClass.CONVERGENT_CAPABLE, lambda a, b: a.resample("bytes", every="1s")),
    (OperatorClass.CONVERGENT_CAPABLE, lambda a, b: a.window("60s", every="1s").aggregate(F.count())),
    (OperatorClass.DETERMINISTIC, lambda a, b: a.count_window(10).aggregate(F.count())),
    (OperatorClass.ARBITRARY, lambda a, b: a.process(lambda rows, state, chance: rows)),
    (OperatorClass.DETERMINISTIC, lambda a, b: a.process(lambda rows, state: rows)),
    (OperatorClass.ARBITRARY, lambda a, b: a.union(b)),
    (OperatorClass.ARBITRARY, lambda a, b: a.window("60s", timeout="5s").aggregate(F.count())),
    (OperatorClass.ARBITRARY, lambda a, b: a.map(lambda rows: rows, deterministic=False)),
]


@pytest.mark.parametrize(("expected", "written"), _CLASSES)
def test_class_of_a_query_is_that_of_its_most_general_operator(
    expected: OperatorClass, written: Callable[[Stream, Stream], Stream]
) -> None:
    query = Query("q")
    a, b = events(query, "a"), events(query, "b")
    b.sink("b")
    written(a, b).filter(F.lit(True)).sink("out")
    assert query.operator_class is expected


_MISTAKES: list[tuple[Callable[[Stream, Query], object], str]] = [
    (lambda s, q: s.filter(F.col("adress") == "a"), "there is no column 'adress'; the stream has"),
    (lambda s, q: s.with_columns(a=3), "each column needs an expression"),
    (lambda s, q: s.filter(F.col("bytes")), "a condition is wanted"),
    (lambda s, q: s.key_by("adress"), "needs a column 'adress'; the stream has 'address', 'at', 'ok', 'bytes'"),
    (lambda s, q: s.key_by(), "key_by needs a column"),
    (lambda s, q: s.key_by("at").window("1s").aggregate(F.count()), "the time column 'at'"),
    (lambda s, q: s.window("1 fortnight"), "write a duration as"),
    (lambda s, q: s.window("0s"), "must be longer"),
    (lambda s, q: s.window("60s").aggregate(), "aggregate needs a function"),
    (lambda s, q: s.window("60s").aggregate(F.sum("address")), "needs a number; the column has type string"),
    (lambda s, q: s.window("60s").aggregate(F.count(), F.count()), "'count' appears more than once"),
    (lambda s, q: s.count_window(0), "must be a whole number, 1 or more"),
    (lambda s, q: s.count_window(2.5), "whole number"),  # type: ignore[arg-type]
    (lambda s, q: s.window("60s").aggregate(many=3), "aggregate takes functions as count()"),  # type: ignore[arg-type]
    (lambda s, q: s.partition("address", parts="4"), "whole number, from 1 to"),  # type: ignore[arg-type]
    (lambda s, q: s.union("other"), "union needs another stream, and not 'other'"),  # type: ignore[arg-type]
    (lambda s, q: s.process(lambda rows: rows), "process calls its function with (rows, state)"),  # type: ignore[arg-type]
    (lambda s, q: s.process(lambda rows, state: rows, key="address"), "no state of columns"),
    (lambda s, q: s.sink(""), "sink needs a name"),
    (lambda s, q: s.filter(F.col("ok"), name=3), "source or an operator named 3"),  # type: ignore[arg-type]
    (lambda s, q: Query(None), "a query needs a name"),  # type: ignore[arg-type]
    (lambda s, q: s.select("address"), "leaves out the time column 'at'"),
    (lambda s, q: s.select("at", "nothing"), "select needs a column 'nothing'"),
    (lambda s, q: s.union(s.select("at")), "union needs streams of one type"),
    (lambda s, q: s.key_by("address").join(s.key_by("ok"), "1s"), "with the same keys"),
    (lambda s, q: s.key_by("address").join(s.key_by("address"), "1s"), "both streams have 'ok', 'bytes'"),
    (lambda s, q: s.resample("address", every="1s", method="linear"), "needs a number"),
    (lambda s, q: s.map("no function"), "map needs a function"),
    (lambda s, q: s.union(events(Query("other"))), "two queries, 'q' and 'other'"),
    (lambda s, q: q.source("events", _SCHEMA, time="at"), "has a 'events' already"),
    (lambda s, q: q.source("more", _SCHEMA, time="when"), "the time column 'when' is not among"),
    (lambda s, q: q.source("more", {"at": "string"}, time="at"), "must be timestamp[us]"),
    (lambda s, q: q.source("more", {"at": "timestomp"}, time="at"), "unknown type 'timestomp'"),
    (lambda s, q: q.network(), "has no sink"),
    (lambda s, q: (s.filter(F.col("ok")), s.sink("out"), q.network()), "nothing reads the stream of 'filter-1'"),
    (
        lambda s, q: (s.unit("a").sort("1s").unit("b").sort("1s").unit("a").sort("1s").sink("x"), q.network()),
        "units 'a', 'b' feed each other",
    ),
]


@pytest.mark.parametrize(("mistake", "said"), _MISTAKES, ids=[said for _, said in _MISTAKES])
def test_mistake_is_named_in_one_line(mistake: Callable[[Stream, Query], object], said: str) -> None:
    query = Query("q")
    stream = events(query)
    with pytest.raises(InvalidQuery) as raised:
        mistake(stream, query)
    assert said in raised.value.message
    assert "\n" not in raised.value.message
