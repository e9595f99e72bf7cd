"""Comparison of keys, the same everywhere: null is a key, all NaN are one key, -0.0 is 0.0 (decision 61)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from peacefs.dataflow.model.operator import Rows
from peacefs.dataflow.model.stream_type import StreamType
from peacefs.dataflow.unit_state.paged_groups import keeps
from peacefs.protocol.errors import InvalidQuery

Codes: TypeAlias = NDArray[np.int64]


def check_keys(keys: Sequence[str], stream: StreamType, purpose: str = "key_by") -> None:
    """Raise InvalidQuery unless a stream has these columns, and rows can be grouped by their types."""
    stream.require(keys, purpose)
    for key in keys:
        kind = stream.schema.field(key).type
        if not keeps(kind):
            raise InvalidQuery(f"{purpose}({key!r}): groups cannot be kept by type {kind}; cast it with select")


def with_plain_keys(rows: Rows, keys: Sequence[str]) -> Rows:
    """Return the rows with normalised keys, so that equal keys have equal bits."""
    for key in keys:
        if pa.types.is_floating(rows.schema.field(key).type):
            at = rows.schema.get_field_index(key)
            rows = rows.set_column(at, rows.schema.field(at), plain_floats(rows.column(at)))
    return rows


def plain_floats(numbers: Any) -> Any:
    """Replace -0.0 by 0.0, and every NaN by the same NaN. Nulls stay."""
    kind = numbers.type
    zeros = compute.equal(numbers, pa.scalar(0.0, kind))
    numbers = compute.if_else(zeros, pa.scalar(0.0, kind), numbers)
    return compute.if_else(compute.is_nan(numbers), pa.scalar(float("nan"), kind), numbers)


def key_codes(columns: Sequence[pa.Array]) -> Codes:
    """Return a number for each row, equal for rows with equal keys."""
    codes: Codes | None = None
    for column in columns:
        plain = plain_floats(column) if pa.types.is_floating(column.type) else column
        encoded = plain.dictionary_encode(null_encoding="encode")
        found = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        if codes is not None:
            # Renumber, so that there is room for the next column.
            _, codes = np.unique(codes, return_inverse=True)
            found = codes.reshape(-1) * len(encoded.dictionary) + found
        codes = found
    assert codes is not None
    return codes


def values_of_keys(rows: pa.Table | Rows, keys: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the key of each row as a tuple of Python values that compare as keys do."""
    return list(zip(*(_comparable_values(rows.column(key)) for key in keys), strict=True)) or [()] * rows.num_rows


def plain_key(values: Iterable[Any]) -> tuple[Any, ...]:
    """Return a key that was stored as a tuple that compares as keys do."""
    return tuple(math.nan if value != value else value for value in values)


def _comparable_values(column: Any) -> list[Any]:
    if pa.types.is_floating(column.type):
        # One object, since a NaN does not equal another one.
        return [math.nan if value != value else value for value in plain_floats(column).to_pylist()]
    values: list[Any] = column.to_pylist()
    return values


def comparable(left: pa.ChunkedArray, right: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Convert key columns so that Arrow's join matches equal keys.

    Arrow itself does not match null with null, or -0.0 with 0.0.
    """
    if not pa.types.is_floating(left.type) and not left.null_count and not right.null_count:
        return left, right
    both = pa.chunked_array([*left.chunks, *right.chunks], left.type).combine_chunks()
    if isinstance(both, pa.ChunkedArray):
        both = pa.concat_arrays(both.chunks)
    codes = pa.chunked_array([pa.array(key_codes([both]))])
    return codes.slice(0, len(left)), codes.slice(len(left))
