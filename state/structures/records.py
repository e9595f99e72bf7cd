"""Records of fixed width: the layout of columns, and conversion between columns and rows of words.

A record consists of the key's columns, padded to a word, and the other columns, padded to a word. Each column is
aligned to its own width. Padding is zero, so equal keys are equal words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from peacefs.protocol.errors import RecordRefused

from .columns import Column, Items

Words = NDArray[np.int64]


class RowLayout:
    """The layout of some columns in `words` words, for keys or values of structures.

    With `key`, equal values become equal words: floats are made canonical.
    """

    def __init__(self, columns: Sequence[Column], *, key: bool = False) -> None:
        self.columns = tuple(columns)
        offsets, end = [], 0
        for column in self.columns:
            width = column.dtype.itemsize
            align = min(8, width & -width)
            offsets.append(-(-end // align) * align)
            end = offsets[-1] + width
        self.offsets = tuple(offsets)
        self.words = -(-end // 8)
        self.dtype = np.dtype(
            {
                "names": [str(number) for number in range(len(self.columns))],
                "formats": [column.dtype for column in self.columns],
                "offsets": offsets,
                "itemsize": self.words * 8,
            }
        )
        # A single column of whole words needs no conversion.
        self._whole = len(self.columns) == 1 and self.columns[0].dtype.itemsize % 8 == 0
        self._canonical = [key and column.dtype.kind == "f" for column in self.columns]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def shown(self) -> list[str]:
        """The names without hidden columns."""
        return [name for name in self.names if not name.startswith("\0")]

    def place_of(self, name: str) -> tuple[Column, int]:
        """Return a column and its offset in bytes. Raises RecordRefused if there is no such column."""
        for column, offset in zip(self.columns, self.offsets, strict=True):
            if column.name == name:
                return column, offset
        raise RecordRefused(f"there is no column {name} to change; there are: {', '.join(self.shown) or 'none'}")

    # -- many --------------------------------------------------------------------------------------

    def items_of(self, given: Any) -> list[Items]:
        """Return the items of each column, all of equal length.

        `given` is a record batch or table, a mapping by name, a sequence of columns, or a single column.
        """
        parts = named(given, self.names)
        items = [column.items_of(parts[column.name]) for column in self.columns]
        items = [canonical(each) if wanted else each for each, wanted in zip(items, self._canonical, strict=True)]
        if len({len(each) for each in items}) > 1:
            raise RecordRefused(f"the columns {', '.join(self.names)} are not as long as one another")
        return items

    def pack(self, given: Any) -> Words:
        """Return rows of words, from what `items_of` accepts. The result may share its memory and be read-only."""
        items = self.items_of(given)
        if self._whole:
            return items[0].view(np.int64).reshape(-1, self.words)
        if not items:
            raise RecordRefused("there are no columns")
        rows = np.zeros(len(items[0]), self.dtype)
        for number, each in enumerate(items):
            rows[str(number)] = each
        return rows.view(np.int64).reshape(-1, self.words)

    def unpack(self, rows: Words) -> dict[str, Items]:
        """Return the items of each column, as views of the rows."""
        records = np.ascontiguousarray(rows).reshape(-1).view(self.dtype) if self.columns else None
        return {
            column.name: records[str(number)] for number, column in enumerate(self.columns) if records is not None
        }

    def arrow_of(self, rows: Words) -> list[pa.Array]:
        """Return each column as an Arrow array."""
        found = self.unpack(rows)
        return [column.arrow_of(found[column.name]) for column in self.columns]

    # -- one ---------------------------------------------------------------------------------------

    def pack_one(self, value: Any) -> Words:
        """Return the words of one record: a value if there is one column, else a tuple."""
        parts = (value,) if len(self.columns) == 1 else value
        if not isinstance(parts, tuple | list) or len(parts) != len(self.columns):
            raise RecordRefused(f"{value!r} is not a tuple of {', '.join(self.names) or 'nothing'}")
        row = bytearray(self.words * 8)
        for column, offset, part, wanted in zip(self.columns, self.offsets, parts, self._canonical, strict=True):
            stored = column.bytes_of(part)
            if wanted:
                stored = canonical(np.frombuffer(stored, column.dtype)).tobytes()
            row[offset : offset + len(stored)] = stored
        return np.frombuffer(row, np.int64)

    def unpack_one(self, row: Words) -> Any:
        """Return the value or tuple that `pack_one` was given."""
        stored = row.tobytes()
        found = tuple(
            column.value_of(stored[offset : offset + column.dtype.itemsize])
            for column, offset in zip(self.columns, self.offsets, strict=True)
        )
        return found[0] if len(found) == 1 else found


def canonical(floats: Any) -> Any:
    """Return the floats with equal bits for equal values, and one NaN."""
    return np.where(np.isnan(floats), np.nan, floats + 0.0).astype(np.asarray(floats).dtype)


def named(given: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return columns by name, from a record batch, table, mapping, sequence of columns, or single column."""
    if isinstance(given, pa.RecordBatch | pa.Table):
        given = {name: given.column(name) for name in given.schema.names}
    if isinstance(given, Mapping):
        missing = [name for name in names if name not in given]
        if missing:
            raise RecordRefused(f"column {missing[0]} was not given")
        return {name: given[name] for name in names}
    parts = [given] if len(names) == 1 else list(given)
    if len(parts) != len(names):
        raise RecordRefused(f"{len(parts)} columns were given; there are {', '.join(names) or 'none'}")
    return dict(zip(names, parts, strict=True))


def split_schema(schema: pa.Schema, key: Sequence[str]) -> tuple[RowLayout, RowLayout]:
    """Return the layouts of key and value. Raises RecordRefused if the schema lacks a key column."""
    for name in key:
        if schema.get_all_field_indices(name) == []:
            raise RecordRefused(f"the schema has no column {name} for the key; it has {', '.join(schema.names)}")
    if len(set(schema.names)) != len(schema.names):
        raise RecordRefused("two columns of the schema have one name")
    keys = [Column(schema.field(name)) for name in key]
    values = [Column(field) for field in schema if field.name not in key]
    return RowLayout(keys, key=True), RowLayout(values)
