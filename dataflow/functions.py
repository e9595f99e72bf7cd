"""Expressions and aggregate functions, named as in `pyspark.sql.functions`.

    from peacefs.dataflow import functions as F
    stream.filter(F.col("status") == 401).key_by("address").window("60s").aggregate(F.count(), F.max("bytes"))

Expressions are those of pyarrow, so they can use any column function of `pyarrow.compute`.
"""

from __future__ import annotations

from typing import Any

import pyarrow.compute

from .operators.aggregates import Aggregation

Expression = pyarrow.compute.Expression


def col(name: str) -> Any:
    """Return a column as an expression: `col("bytes") * 8`."""
    return pyarrow.compute.field(name)


def lit(value: Any) -> Any:
    """Return a value as an expression."""
    return pyarrow.compute.scalar(value)


def count() -> Aggregation:
    """Count the rows of a window."""
    return Aggregation("count", None, "count")


def sum(column: str) -> Aggregation:
    """Add up the values of a column; null if there are none."""
    return Aggregation("sum", column, f"sum_{column}")


def min(column: str) -> Aggregation:
    """Return the smallest value of a column."""
    return Aggregation("min", column, f"min_{column}")


def max(column: str) -> Aggregation:
    """Return the largest value of a column."""
    return Aggregation("max", column, f"max_{column}")


def mean(column: str) -> Aggregation:
    """Return the mean of the values of a column."""
    return Aggregation("mean", column, f"mean_{column}")
