"""Convert between columns of Spark and of stream logs, which store times in UTC without a zone."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from peacefs.dataflow.model.stream_type import TIME
from peacefs.protocol.errors import InvalidQuery

_INSTANT = pa.timestamp("us", tz="UTC")
_ROWS = 10_000


def spark_schema(schema: pa.Schema) -> Any:
    """Return the columns of a log as Spark's StructType. Raises InvalidQuery for a type that Spark lacks."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_schema

    fields = [pa.field(field.name, _INSTANT if field.type == TIME else field.type) for field in schema]
    try:
        return from_arrow_schema(pa.schema(fields))
    except PySparkException as error:
        raise InvalidQuery(f"Spark cannot read this stream log: {error}") from None


def arrow_schema(schema: Any) -> pa.Schema:
    """Return Spark's StructType as Arrow's, times in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def spark_rows(rows: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """Return rows of a log with the columns that Spark wants. Raises InvalidQuery if a column is missing."""
    missing = [name for name in wanted.names if name not in rows.schema.names]
    if missing:
        raise InvalidQuery(f"the stream log has no column {missing[0]!r}; it has {', '.join(rows.schema.names)}")
    return pa.RecordBatch.from_arrays(
        [rows.column(field.name).cast(field.type) for field in wanted], schema=wanted
    )


def log_rows(rows: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """Return Spark's rows with the columns of a log. Times in any zone become UTC; the instants stay the same."""
    columns = [column.cast(field.type) for column, field in zip(rows.columns, wanted, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def rows_from_python(rows: Iterator[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Convert Python rows, which Spark 4.0 passes, to Arrow batches."""
    while some := list(itertools.islice(rows, _ROWS)):
        yield pa.RecordBatch.from_pylist([row.asDict(recursive=True) for row in some], schema=schema)
