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


def sessions(gap_us: int, aggregate: str, *, longest: bool = False) -> Unary:
    """Return sessions of rows less than `gap_us` apart, or at most that, with the time of their end."""

    def sql(rows: str) -> str:
        apart = f"t - lag(t) OVER {_IN_KEY}"
        begins = f"CASE WHEN {apart} {'<=' if longest else '<'} {gap_us} THEN 0 ELSE 1 END"
        marked = f"(SELECT *, {begins} AS begins FROM {rows})"
        of_sessions = f"(SELECT *, sum(begins) OVER {_IN_KEY} AS number FROM {marked})"
        return (
            f"(SELECT key, max(t) + {gap_us} AS t, {aggregate} AS value FROM {of_sessions} GROUP BY key, number)"
        )

    return sql


def so_far(every_us: int) -> Unary:
    """Return each key's sum of all its rows, at each multiple of `every_us` before which it had new ones.

    Rows after the last of these multiples give a result with the time of the last row of all.
    """

    def sql(rows: str) -> str:
        period = f"t // {every_us}"
        new = f"(SELECT key, {period} AS period, sum(value) AS new FROM {rows} GROUP BY key, {period})"
        total = "sum(new) OVER (PARTITION BY key ORDER BY period)"
        last = f"(SELECT max(t) FROM {rows})"
        time = f"CASE WHEN period = {last} // {every_us} THEN {last} ELSE (period + 1) * {every_us} END"
        return f"(SELECT key, {time} AS t, {total} AS value FROM {new})"

    return sql


def every_so_many(count: int) -> Unary:
    """Return a key's sum of all its rows with each `count` of its rows; the last one with the time of all rows."""

    def sql(rows: str) -> str:
        total = f"sum(value) OVER {_IN_KEY} AS total, row_number() OVER {_IN_KEY} AS number"
        counted = f"(SELECT *, {total}, count(*) OVER (PARTITION BY key) AS all_rows FROM {rows})"
        time = f"CASE WHEN number % {count} = 0 THEN t ELSE (SELECT max(t) FROM {rows}) END"
        return (
            f"(SELECT key, {time} AS t, total AS value FROM {counted} "
            f"WHERE number % {count} = 0 OR number = all_rows)"
        )

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


def near_pairs(lower_us: int, upper_us: int, left_value: str, right_value: str, how: str) -> Binary:
    """Return an outer join of rows whose times, the right minus the left, are between two bounds."""
    return lambda left, right: (
        f"(SELECT CASE WHEN l.t IS NULL THEN r.key ELSE l.key END AS key, "
        f"greatest(coalesce(l.t, r.t), coalesce(r.t, l.t)) AS t, {left_value} + {right_value} AS value "
        f"FROM {left} AS l {how} JOIN {right} AS r "
        f"ON l.key IS NOT DISTINCT FROM r.key AND r.t - l.t BETWEEN {lower_us} AND {upper_us})"
    )


def latest_of_table(value: str, *, outer: bool) -> Binary:
    """Return each left row with the latest right row of its key up to the same time."""

    def sql(left: str, right: str) -> str:
        latest = (
            f"(SELECT r.value FROM {right} AS r WHERE r.key IS NOT DISTINCT FROM l.key AND r.t <= l.t "
            "ORDER BY r.t DESC LIMIT 1)"
        )
        met = f"(SELECT key, t, value, {latest} AS found FROM {left} AS l)"
        where = "" if outer else " WHERE found IS NOT NULL"
        return f"(SELECT key, t, {value} AS value FROM {met}{where})"

    return sql


_IN_KEY = "(PARTITION BY key ORDER BY t, value)"
