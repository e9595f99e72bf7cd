"""Format rows of a log as lines: tab-separated text, for tools such as `cut`, or JSON."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa

from peacefs.dataflow.model.batches import Batch
from peacefs.protocol.errors import BadRequest

_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
#: As in PostgreSQL's text format.
_NULL = "\\N"
#: The JSON key of a row's number, beside its columns.
NUMBER = "_number"


def as_json(batch: Batch) -> Iterator[str]:
    """Yield a JSON object per row. Bytes are Base64, times ISO 8601."""
    for place, row in enumerate(batch.rows.to_pylist()):
        yield msgspec.json.encode({NUMBER: batch.first + place} | row, enc_hook=str).decode()


def as_text(batch: Batch, *, numbered: bool) -> Iterator[list[str]]:
    """Yield the columns of each line. If `numbered`, a line begins with the row's number, as with `cat -n`."""
    for place, values in enumerate(zip(*(column.to_pylist() for column in batch.rows.columns), strict=True)):
        start = [f"{batch.first + place:>6}"] if numbered else []
        yield [*start, *map(_text, values)]


def _text(value: Any) -> str:
    match value:
        case None:
            return _NULL
        case datetime():
            return value.isoformat()
        case bytes():
            return value.hex()
        case bool():
            return str(value).lower()
        case dict() | list():
            return msgspec.json.encode(value, enc_hook=str).decode()
    return str(value).translate(_ESCAPES)


def time_us(text: str) -> int:
    """Parse a time into microseconds since 1970. A time without an offset is UTC. Raises BadRequest."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise BadRequest(f"{text!r} is no time: 2026-01-31T12:00:00 is one, in UTC") from None
    return int(pa.scalar(at if at.tzinfo else at.replace(tzinfo=UTC), pa.timestamp("us", tz="UTC")).value)
