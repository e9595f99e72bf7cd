"""Rows as files: Parquet, JSON lines and CSV."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from peacefs.dataflow.model.stream_type import StreamType, names_of
from peacefs.protocol.errors import InvalidQuery
from peacefs.protocol.limits import MIB

from .json_rows import UnreadableRow, lines_of, read_rows, write_rows

# Text files are read whole, so that a bad row refuses its file and not only the rest of it.
text_file_bytes_max: Final = 256 * MIB


class UnreadableFile(Exception):
    """A file does not contain rows of the wanted type. The text says why."""


@dataclass(frozen=True)
class FileFormat:
    name: str
    suffix: str
    write: Callable[[pa.Table, str], bytes]
    #: Reads columns of the type from an open file. Raises UnreadableFile.
    read: Callable[[Any, pa.Schema], pa.Table]


def format_of(name: str) -> FileFormat:
    """Return a format by its name. Raises InvalidQuery."""
    if name not in _FORMATS:
        raise InvalidQuery(f"format={name!r}: files are in one of {names_of(_FORMATS)}")
    return _FORMATS[name]


def conform(table: pa.Table, kind: StreamType) -> pa.Table:
    """Convert the rows of a file to the type of the stream. Raises UnreadableFile with the difference."""
    try:
        return pa.Table.from_batches([kind.conform(table)])
    except InvalidQuery as error:
        raise UnreadableFile(error.message) from error


def _write_parquet(table: pa.Table, what: str) -> bytes:
    made = io.BytesIO()
    pyarrow.parquet.write_table(table, made)
    return made.getvalue()


def _read_parquet(file: Any, schema: pa.Schema) -> pa.Table:
    try:
        return pyarrow.parquet.read_table(file, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise UnreadableFile(f"it is no whole Parquet file ({_line(error)})") from error


def _write_json(table: pa.Table, what: str) -> bytes:
    return b"".join(lines_of(write_rows(batch, what)) for batch in table.to_batches())


def _read_json(file: Any, schema: pa.Schema) -> pa.Table:
    values = [line for line in _text(file).split(b"\n") if line.strip()]
    try:
        return pa.Table.from_batches([read_rows(values, schema)])
    except UnreadableRow as error:
        raise UnreadableFile(f"row {error.index + 1} does not fit: {error.reason}") from error


def _write_csv(table: pa.Table, what: str) -> bytes:
    made = io.BytesIO()
    pyarrow.csv.write_csv(table, made)
    return made.getvalue()


def _read_csv(file: Any, schema: pa.Schema) -> pa.Table:
    data = _text(file)
    types = {field.name: field.type for field in schema}
    try:
        return pyarrow.csv.read_csv(
            io.BytesIO(data),
            read_options=pyarrow.csv.ReadOptions(use_threads=False, block_size=max(len(data) + 1, 1024)),
            parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
            # What is not quoted and empty is null; an empty text is quoted, as DuckDB and pyarrow write it.
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False, null_values=[""]
            ),
        )
    except (pa.ArrowException, ValueError) as error:
        raise UnreadableFile(f"it does not parse as CSV: {_line(error)}") from error


def _text(file: Any) -> bytes:
    data = bytes(file.read(text_file_bytes_max + 1))
    if len(data) > text_file_bytes_max:
        raise UnreadableFile(f"it has more than {text_file_bytes_max:,} bytes: split it, or use Parquet")
    return data


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())


_FORMATS: Final = {
    each.name: each
    for each in (
        FileFormat("parquet", ".parquet", _write_parquet, _read_parquet),
        FileFormat("jsonl", ".jsonl", _write_json, _read_json),
        FileFormat("csv", ".csv", _write_csv, _read_csv),
    )
}
