"""Rows as JSON: one object per row, for Kafka, sockets, HTTP and files of JSON lines.

Times are ISO 8601 in UTC without a zone, decimals are strings, and bytes are base64. NaN and infinities have no
JSON form and are refused.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from peacefs.protocol.errors import QueryFailed


class UnreadableRow(Exception):
    """A value cannot be read as a row. `index`: which one of the values."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index, self.reason = index, reason


def read_rows(values: Sequence[bytes], schema: pa.Schema) -> pa.RecordBatch:
    """Read one row from each value. Missing columns are null. Raises UnreadableRow for the first bad value.

    Columns that the schema does not have are refused.
    """
    if not values:
        return pa.RecordBatch.from_pylist([], schema=schema)
    try:
        return _read(values, schema)
    except (pa.ArrowException, ValueError) as error:
        if len(values) == 1:
            raise UnreadableRow(0, _shown(error, values[0])) from error
    half = len(values) // 2
    first = read_rows(values[:half], schema)
    try:
        second = read_rows(values[half:], schema)
    except UnreadableRow as error:
        raise UnreadableRow(half + error.index, error.reason) from error
    # Both halves can be read alone, so a value began in one line and ended in another.
    return _joined(first, second)


def read_readable_rows(values: Sequence[bytes], schema: pa.Schema) -> tuple[pa.RecordBatch, list[int], list[str]]:
    """Read rows, and skip bad values. Return the rows, their indices in `values`, and an error per bad value."""
    if not values:
        return pa.RecordBatch.from_pylist([], schema=schema), [], []
    try:
        return _read(values, schema), list(range(len(values))), []
    except (pa.ArrowException, ValueError) as error:
        if len(values) == 1:
            return pa.RecordBatch.from_pylist([], schema=schema), [], [_shown(error, values[0])]
    half = len(values) // 2
    first, kept, reasons = read_readable_rows(values[:half], schema)
    second, others, more = read_readable_rows(values[half:], schema)
    return _joined(first, second), kept + [half + each for each in others], reasons + more


def write_rows(rows: pa.RecordBatch, what: str) -> list[bytes]:
    """Return each row as a JSON object. Raises QueryFailed, naming `what`, for NaN and infinities."""
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if pa.types.is_floating(field.type) and not pc.all(pc.is_finite(column), skip_nulls=True).as_py():
            if column.null_count == len(column):
                continue
            raise QueryFailed(
                f"{what} cannot write column {field.name!r} as JSON: it has NaN or infinity; filter such rows, or "
                "make them null"
            )
    encode = msgspec.json.encode
    return [encode(row) for row in rows.to_pylist()]


def lines_of(values: Iterable[bytes]) -> bytes:
    return b"".join(value + b"\n" for value in values)


def _joined(first: pa.RecordBatch, second: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.concat_arrays(both) for both in zip(first.columns, second.columns, strict=True)], schema=first.schema
    )


def _read(values: Sequence[bytes], schema: pa.Schema) -> pa.RecordBatch:
    # A value that begins and ends like an object has at least one row, and no row has parts of two such values.
    for value in values:
        stripped = value.strip()
        if not (stripped.startswith(b"{") and stripped.endswith(b"}")):
            raise ValueError("one JSON object per row is wanted")
    # A line break between tokens is white space, and within a string it is not allowed.
    data = b"\n".join(value.replace(b"\n", b" ").replace(b"\r", b" ") for value in values)
    if not data.isascii():
        # pyarrow does not check it, and the text would fail elsewhere. Raises UnicodeDecodeError, a ValueError.
        data.decode()
    options = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
    read = pyarrow.json.ReadOptions(use_threads=False, block_size=max(len(data) + 1, 1 << 10))
    table = pyarrow.json.read_json(io.BytesIO(data), read_options=read, parse_options=options)
    if table.num_rows != len(values):
        raise ValueError(f"{table.num_rows} rows in {len(values)} values: one JSON object per row is wanted")
    (batch,) = table.select(schema.names).cast(schema).combine_chunks().to_batches()
    return batch


def _shown(error: BaseException, value: bytes) -> str:
    text = value[:60].decode(errors="replace")
    return f"{' '.join(str(error).split())} in {text!r}"
