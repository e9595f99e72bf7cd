"""Phases: the small part of an operator's state that cannot be derived from recent rows.

Examples: the position within a window of a number of rows depends on the count of all rows of its key, and a
timeout closes windows that no row has closed. If an operator begins empty in the middle of its input, and gets the
phases that it had there, it has the same windows from there on. Later phases of a key replace earlier ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from peacefs.protocol.errors import ProtocolViolation

#: Prefix of columns that are not part of the key.
_VALUE = "__"


@dataclass(frozen=True)
class Phases:
    """Changes of an operator's phases since some moment, or all of its phases."""

    #: True if the earlier phases of keys were removed.
    cleared: bool = False
    #: One row per changed key: the key columns, then a value.
    keys: pa.Table | None = None
    #: The current values that do not belong to a key; None if they did not change.
    values: tuple[int | None, ...] | None = None

    def then(self, later: Phases) -> Phases:
        """Combine these changes with later ones."""
        values = self.values if later.values is None else later.values
        if later.cleared or self.keys is None:
            return Phases(self.cleared or later.cleared, later.keys, values)
        if later.keys is None:
            return Phases(self.cleared, self.keys, values)
        return Phases(self.cleared, last_of_keys([self.keys, later.keys]), values)


def last_of_keys(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the last row of each key in tables with the same columns."""
    table = pa.concat_tables(tables)
    keys = [name for name in table.column_names if not name.startswith(_VALUE)]
    values = [name for name in table.column_names if name.startswith(_VALUE)]
    if not keys:
        return table.slice(max(table.num_rows - 1, 0))
    last = table.group_by(keys, use_threads=False).aggregate([(name, "last") for name in values])
    return last.rename_columns([*keys, *values]).select(table.column_names)


def pack(phases: Mapping[str, Phases]) -> bytes:
    """Encode phases of operators as bytes; empty if there are none."""
    if not phases:
        return b""
    return msgspec.msgpack.encode(
        {name: (each.cleared, each.values, _packed(each.keys)) for name, each in phases.items()}
    )


def unpack(data: bytes) -> dict[str, Phases]:
    """Decode the result of `pack`. Raises ProtocolViolation for other bytes."""
    if not data:
        return {}
    try:
        read = msgspec.msgpack.decode(data, type=dict[str, tuple[bool, tuple[int | None, ...] | None, bytes]])
        return {name: Phases(cleared, _unpacked(keys), values) for name, (cleared, values, keys) in read.items()}
    except (msgspec.DecodeError, pa.ArrowException, OSError) as error:
        raise ProtocolViolation(f"phases of operators cannot be read: {error}") from error


def _packed(table: pa.Table | None) -> bytes:
    if table is None:
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _unpacked(data: bytes) -> pa.Table | None:
    return pa.ipc.open_stream(data).read_all() if data else None
