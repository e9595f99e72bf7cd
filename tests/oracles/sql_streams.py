"""Operators of dataflows as SQL over all rows of their streams, as docs/dataflow.md defines them.

A relation has the columns `key`, `t`, the time in microseconds, and `value`. Rows come in the order of their
times, and rows of one key and time in the order of `value`. Null is a key like others, all NaN are one key, and
-0.0 is 0.0.
"""

from __future__ import annotations

from collections.abc import Callable

import duckdb
import pyarrow as pa

#: Takes SQL for rows, and returns SQL for the operator's output.
Unary = Callable[[str], str]
Binary = Callable[[str, str], str]


def rows_of(sql: Callable[..., str], *tables: pa.Table) -> list[tuple[object, ...]]:
    """Return the rows that DuckDB computes from streams."""
    with duckdb.connect() as connection:
        for number, table in enumerate(tables):
            connection.register(f"given_{number}", table)
        zero = "CASE WHEN key = 0 THEN 0 ELSE key END"
        plain = ["key" if pa.types.is_string(table.schema.field("key").type) else zero for table in tables]
        given = [
            f'(SELECT {key} AS key, epoch_us("at") AS t, value FROM given_{number})'
            for number, key in enumerate(plain)
        ]
        return connection.execute(f"SELECT key, t, value FROM {sql(*given)}").fetchall()


def where(condition: str) -> Unary:
    return lambda rows: f"(SELECT * FROM {rows} WHERE {condition})"


def computed(value: str) -> Unary:
    return lambda rows: f"(SELECT key, t, {value} AS value FROM {rows})"


def every_row_and(value: str) -> Unary:
    """Return each row, followed by a copy with another value."""
    return lambda rows: f"(SELECT * FROM {rows} UNION ALL SELECT key, t, {value} FROM {rows})"


def windows(size_us: int, every_us: int, aggregate: str) -> Unary:
    """Return windows that start at multiples of `every_us`, each with the rows before its end."""

    def sql(rows: str) -> str:
        first = f"CAST(floor((t - {size_us}) / {every_us}) AS BIGINT) + 1"
        last = f"CAST(floor(t / {every_us}) AS BIGINT)"
        of_windows = f"(SELECT *, unnest(generate_series({first}, {last})) AS number FROM {rows})"
        end = f"number * {every_us} + {size_us}"
        return f"(SELECT key, {end} AS t, {aggregate} AS value FROM {of_windows} GROUP BY key, number)"

    return sql


def count_windows(size: int, aggregate: str) -> Unary:
    """Return a window for each `size` rows of a key, with its last row's time. Leave out incomplete windows."""

    def sql(rows: str) -> str:
        of_windows = f"(SELECT *, (row_number() OVER {_IN_KEY} - 1) // {size} AS number FROM {rows})"
        return (
            f"(SELECT key, max(t) AS t, {aggregate} AS value FROM {of_windows} GROUP BY key, number "
            f"HAVING count(*) = {size})"
        )

    return sql


def numbered(rows: str) -> str:
    """Return the rows with their numbers, counted by key from 1."""
    return f"(SELECT key, t, row_number() OVER {_IN_KEY} AS value FROM {rows})"


def resampled(every_us: int) -> Unary:
    """Return the latest value at multiples of `every_us`, from the first row of a key to the last."""

    def sql(rows: str) -> str:
        spans = f"(SELECT key, min(t) AS first, max(t) AS last FROM {rows} GROUP BY key)"
        begin, end = (
            f"CAST(ceil(first / {every_us}) AS BIGINT)",
            f"CAST(floor(last / {every_us}) AS BIGINT)",
        )
        grid = f"(SELECT key, unnest(generate_series({begin}, {end})) * {every_us} AS t FROM {spans})"
        latest = (
            f"(SELECT value FROM {rows} AS r WHERE r.key IS NOT DISTINCT FROM g.key AND r.t <= g.t "
            "ORDER BY r.t DESC, r.value DESC LIMIT 1)"
        )
        return f"(SELECT key, t, {latest} AS value FROM {grid} AS g)"

    return sql


def same(rows: str) -> str:
    return rows


def both(left: str, right: str) -> str:
    return f"(SELECT * FROM {left} UNION ALL SELECT * FROM {right})"


def pairs(within_us: int, value: str) -> Binary:
    """Return pairs of rows with equal keys whose times differ by at most `within_us`, with the later time."""
    return lambda left, right: (
        f"(SELECT l.key, greatest(l.t, r.t) AS t, {value} AS value FROM {left} AS l JOIN {right} AS r "
        f"ON l.key IS NOT DISTINCT FROM r.key AND abs(l.t - r.t) <= {within_us})"
    )


_IN_KEY = "(PARTITION BY key ORDER BY t, value)"
