"""The demo's query, as a dataflow and as a Spark batch: failed log-ins per source address in sliding windows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.model.stream_type import TIME
from peacefs.dataflow.query.network import Network
from peacefs.spark_connector.demo.auth_log import YearAssumption, parse_line

#: Rows of the source: a line, and its number in the type of a time, since a stream needs a time column.
LINES = pa.schema([("line", pa.string()), ("arrived", TIME)])
_NEWS = pa.schema([("at", TIME), ("source", pa.string()), ("failures", pa.int64())])
SOURCE, SINK = "lines", "failed log-ins"
#: The stateful unit, whose node is killed.
WINDOWS = "windows"

#: (start of the window in microseconds, source, failures)
Row = tuple[int, str, int]


def network(years: YearAssumption, size_s: int, every_s: int, lateness_s: int) -> Network:
    """Return three units: parse lines, count failures per window, and drop windows without failures."""

    def read(rows: pa.RecordBatch) -> pa.RecordBatch:
        found = [parse_line(line, years) for line in rows.column("line").to_pylist()]
        news = [(each.at, each.source or "", each.failures) for each in found if each.at is not None]
        columns = list(zip(*news, strict=True)) or [(), (), ()]
        at = pa.array(columns[0], pa.timestamp("us", "UTC")).cast(pa.int64()).cast(TIME)
        arrays = [at, pa.array(columns[1], pa.string()), pa.array(columns[2], pa.int64())]
        return pa.RecordBatch.from_arrays(arrays, schema=_NEWS)

    query = Query("failed-logins")
    (
        query.source(SOURCE, LINES, time="arrived")
        .unit("lines")
        .flat_map(read, _NEWS, time="at")
        .unit(WINDOWS)
        .key_by("source")
        .window(f"{size_s}s", every=f"{every_s}s", lateness=f"{lateness_s}s")
        .aggregate(failures=F.sum("failures"))
        .unit("news")
        .filter(F.col("failures") > 0)
        .sink(SINK)
    )
    return query.network()


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    """Return the sink's rows in the form in which they are compared."""
    starts = batch.column("window_start").cast(pa.int64()).to_pylist()
    return list(zip(starts, batch.column("source").to_pylist(), batch.column("failures").to_pylist(), strict=True))


def batch_rows(session: Any, directory: str, years: YearAssumption, size_s: int, every_s: int) -> list[Row]:
    """Return the same rows, computed by Spark from all lines at once."""
    from pyspark.sql import functions as S

    from peacefs.spark_connector.demo import auth_log_columns

    line = S.col("value")
    news = (
        session.read.option("lineSep", "\n")
        .text(directory)
        .select(
            auth_log_columns.instant(line, years).alias("at"),
            auth_log_columns.source(line).alias("source"),
            auth_log_columns.failures(line).alias("failures"),
        )
        .where(S.col("at").isNotNull())
    )
    counted = (
        news.groupBy(S.window("at", f"{size_s} seconds", f"{every_s} seconds"), "source")
        .agg(S.sum("failures").alias("failures"))
        .where(S.col("failures") > 0)
        .select(S.unix_micros("window.start").alias("start"), "source", "failures")
    )
    return [(row.start, row.source, row.failures) for row in counted.collect()]
