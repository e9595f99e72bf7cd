"""Aggregates give the results of Python's integers and fractions, or stop the query; never another number."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from oracles import exact_aggregates as exact
from simulation.seeds import seeds
from support.long_runs import often
from support.operator_runs import operator_of, run_operator

from peacefs.dataflow import functions as F
from peacefs.dataflow.query.streams import Stream
from peacefs.protocol.errors import InvalidQuery

_TIME = pa.timestamp("us")
_NAN = float("nan")
_INFINITY = float("inf")

_SIGNED = [0, 1, -1, 2**31, -(2**31) - 1, 2**53 - 1, 2**53 + 1, -(2**53) - 1, 2**62, -(2**62), 2**63 - 1, -(2**63)]
_FLOATS = [0.0, -0.0, 1.5, -1e16, 1e16, 1e308, 5e-324, _INFINITY, -_INFINITY, _NAN, -_NAN, 2.0**53]
_NUMBERS: dict[pa.DataType, list[Any]] = {
    pa.int8(): [0, 1, -128, 127],
    pa.uint16(): [0, 1, 65535],
    pa.int32(): [0, -(2**31), 2**31 - 1],
    pa.uint32(): [0, 2**32 - 1],
    pa.int64(): _SIGNED,
    pa.uint64(): [0, 1, 2**53 + 1, 2**63, 2**64 - 1],
}
_ORDERED: dict[pa.DataType, list[Any]] = {
    **_NUMBERS,
    pa.float32(): [0.0, -0.0, 1.5, -2.5, _INFINITY, -_INFINITY, _NAN],
    pa.float64(): _FLOATS,
    pa.decimal128(30, 2): [Decimal("0.00"), Decimal("-1.50"), Decimal("9" * 28 + ".99")],
    pa.string(): ["", "a", "é", "z" * 40],
    pa.bool_(): [True, False],
    pa.date32(): [dt.date(1, 1, 1), dt.date(2026, 3, 29), dt.date(9999, 12, 31)],
    _TIME: [dt.datetime(1900, 1, 1), dt.datetime(2026, 10, 25, 2, 30), dt.datetime(2200, 1, 1, 0, 0, 0, 1)],
    pa.timestamp("us", "Europe/Berlin"): [dt.datetime(2026, 10, 25, hour, 30, tzinfo=dt.UTC) for hour in range(3)],
    pa.duration("us"): [dt.timedelta(0), dt.timedelta(days=-3), dt.timedelta(microseconds=1)],
    pa.time64("us"): [dt.time(0), dt.time(23, 59, 59, 999999)],
}


def rows_of(kind: pa.DataType, values: list[Any], keys: list[Any], key_type: pa.DataType) -> pa.RecordBatch:
    """Return rows with times within half a minute."""
    times = pa.array([at * 30_000_000 // len(values) for at in range(len(values))], pa.int64()).cast(_TIME)
    columns = [pa.array(keys, key_type), times, pa.array(values, kind)]
    return pa.RecordBatch.from_arrays(columns, names=["key", "at", "value"])


def sliding(stream: Stream, *functions: Any) -> Stream:
    """Return sliding windows; those that contain all rows are merged from several panes."""
    return stream.key_by("key").window("40s", every="10s").aggregate(F.count(), *functions)


def counted(size: int) -> Callable[..., Stream]:
    return lambda stream, *functions: stream.key_by("key").count_window(size).aggregate(F.count(), *functions)


def windows(made: pa.Table, count: int) -> list[dict[str, Any]]:
    """Return the windows that have all rows."""
    return [row for row in made.to_pylist() if row["count"] == count]


def drawn(chance: random.Random, extremes: list[Any], count: int) -> list[Any]:
    return [chance.choice([None, *extremes, *extremes]) for _ in range(count)]


@pytest.mark.parametrize("seed", seeds(often(1, 60)))
@pytest.mark.parametrize("kind", _NUMBERS, ids=str)
def test_sums_and_means_of_whole_numbers_are_exact_or_stop_the_query(kind: pa.DataType, seed: int) -> None:
    chance = random.Random(f"{seed} {kind}")
    count = chance.choice([1, 4, 4, 90, 1500])
    values = drawn(chance, _NUMBERS[kind] if seed % 2 else _NUMBERS[kind][:3], count)
    rows = rows_of(kind, values, ["k"] * count, pa.string())
    for write in (sliding, counted(count)):
        means = operator_of(lambda stream, write=write: write(stream, F.mean("value")), rows.schema)
        found = windows(run_operator(means, rows, chance=chance), count)
        assert found
        for row in found:
            assert exact.same(row["mean_value"], exact.mean(values))
        sums = operator_of(lambda stream, write=write: write(stream, F.sum("value")), rows.schema)
        expected = exact.total(values)
        low, high = (0, 2**64) if pa.types.is_unsigned_integer(kind) else (-(2**63), 2**63)
        if expected is None or low <= expected < high:
            try:
                found = windows(run_operator(sums, rows, chance=chance), count)
            except OverflowError:
                # A sliding window with some of the rows may have a larger sum.
                assert write is sliding
                continue
            assert found
            for row in found:
                assert exact.same(row["sum_value"], expected)
        else:
            with pytest.raises(
                OverflowError, match=r"^sum\('value'\): the result -?\d+ does not fit into u?int64"
            ):
                run_operator(sums, rows, chance=chance)


@pytest.mark.parametrize("values", [[_NAN, 1.0], [1.0, -_NAN], [_NAN, _NAN], [_NAN, None]])
def test_nan_is_the_highest_number(values: list[Any]) -> None:
    rows = rows_of(pa.float64(), values, ["k"] * 2, pa.string())
    node = operator_of(lambda stream: counted(2)(stream, F.min("value"), F.max("value")), rows.schema)
    (row,) = run_operator(node, rows).to_pylist()
    assert exact.same(row["min_value"], exact.lowest(values))
    assert exact.same(row["max_value"], exact.highest(values))


def test_mean_of_a_count_window_of_large_numbers_is_their_mean() -> None:
    rows = rows_of(pa.int64(), [2**62] * 4, ["k"] * 4, pa.string())
    node = operator_of(lambda stream: counted(4)(stream, F.mean("value")), rows.schema)
    assert run_operator(node, rows).column("mean_value").to_pylist() == [float(2**62)]


def test_sum_may_leave_64_bits_on_its_way_and_come_back() -> None:
    values = [2**63 - 1, 2**63 - 1, 5, -(2**63), -(2**63)]
    rows = rows_of(pa.int64(), values, ["k"] * 5, pa.string())
    node = operator_of(lambda stream: counted(5)(stream, F.sum("value")), rows.schema)
    assert run_operator(node, rows, chance=random.Random(1)).column("sum_value").to_pylist() == [sum(values)]


@pytest.mark.parametrize("seed", seeds(often(1, 40)))
@pytest.mark.parametrize("kind", _ORDERED, ids=str)
def test_extremes_are_values_of_the_column(kind: pa.DataType, seed: int) -> None:
    chance = random.Random(f"{seed} {kind}")
    count = chance.choice([1, 2, 40, 1500])
    few = chance.sample(_ORDERED[kind], min(seed % 3 + 1, len(_ORDERED[kind])))
    given = pa.array(drawn(chance, few, count), kind)
    values = given.to_pylist()
    rows = rows_of(kind, given, ["k"] * count, pa.string())
    for write in (sliding, counted(count)):
        node = operator_of(lambda stream, write=write: write(stream, F.min("value"), F.max("value")), rows.schema)
        assert node.type.schema.field("min_value").type == kind
        found = windows(run_operator(node, rows, chance=chance), count)
        assert found
        for row in found:
            assert exact.same(row["min_value"], exact.lowest(values)), (values, row)
            assert exact.same(row["max_value"], exact.highest(values)), (values, row)


@pytest.mark.parametrize("seed", seeds(often(4, 80)))
def test_sums_of_floats_are_as_near_as_additions_can_be(seed: int) -> None:
    chance = random.Random(seed)
    finite = [value for value in _FLOATS if math.isfinite(value)]
    values = drawn(chance, _FLOATS if seed % 2 else finite[:5], chance.choice([1, 5, 60]))
    rows = rows_of(pa.float64(), values, ["k"] * len(values), pa.string())
    expected = exact.float_total(values)
    for write in (sliding, counted(len(values))):
        node = operator_of(lambda stream, write=write: write(stream, F.sum("value"), F.mean("value")), rows.schema)
        for row in windows(run_operator(node, rows, chance=chance), len(values)):
            if expected is None:
                assert row["sum_value"] is None and row["mean_value"] is None
                continue
            nearest, bound = expected
            number = len(exact.values_of(values))
            if math.isfinite(nearest) and math.isfinite(bound):
                assert row["sum_value"] == pytest.approx(nearest, rel=0, abs=bound)
                assert row["mean_value"] == row["sum_value"] / number
            elif not math.isfinite(nearest):
                assert exact.same(row["sum_value"], nearest) and exact.same(row["mean_value"], nearest)


_DECIMALS: dict[pa.DataType, list[Any]] = {
    pa.decimal128(9, 2): [Decimal("0.00"), Decimal("-0.01"), Decimal("9999999.99"), Decimal("-9999999.99")],
    pa.decimal128(38, 0): [Decimal(2**64), Decimal(-(2**96)), Decimal("9" * 38), Decimal("-" + "9" * 38)],
    pa.decimal128(9, -3): [Decimal("1e3"), Decimal("-999999999e3")],
    pa.decimal128(38, 10): [Decimal("1e-10"), Decimal("-3.3333333333"), Decimal("4294967296.0000000001")],
}


@pytest.mark.parametrize("seed", seeds(often(2, 60)))
@pytest.mark.parametrize("kind", _DECIMALS, ids=str)
def test_sums_and_means_of_decimals_are_exact_or_stop_the_query(kind: pa.DataType, seed: int) -> None:
    chance = random.Random(f"{seed} {kind}")
    count = chance.choice([1, 4, 90, 1500])
    values = drawn(chance, _DECIMALS[kind], count)
    rows = rows_of(kind, values, ["k"] * count, pa.string())
    exactly = [Fraction(value) for value in values if value is not None]
    for write in (sliding, counted(count)):
        means = operator_of(lambda stream, write=write: write(stream, F.mean("value")), rows.schema)
        for row in windows(run_operator(means, rows, chance=chance), count):
            assert exact.same(row["mean_value"], float(sum(exactly) / len(exactly)) if exactly else None)
        sums = operator_of(lambda stream, write=write: write(stream, F.sum("value")), rows.schema)
        if abs(sum(exactly)) * Fraction(10) ** kind.scale >= 10**38:
            with pytest.raises(
                OverflowError, match=r"^sum\('value'\): the result -?[\d.]+ does not fit into decimal"
            ):
                run_operator(sums, rows, chance=chance)
            continue
        try:
            found = windows(run_operator(sums, rows, chance=chance), count)
        except OverflowError:
            # A sliding window with some of the rows may have a larger sum.
            assert write is sliding
            continue
        for row in found:
            assert (None if row["sum_value"] is None else Fraction(row["sum_value"])) == (
                sum(exactly) if exactly else None
            )


def test_number_that_is_nothing_of_a_sum_is_refused_when_the_query_is_written() -> None:
    schema = rows_of(pa.string(), [], [], pa.string()).schema
    with pytest.raises(InvalidQuery, match="needs a number"):
        operator_of(lambda stream: counted(1)(stream, F.sum("value")), schema)
