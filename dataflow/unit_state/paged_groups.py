"""Accumulators by bucket and key in pages: a map per bucket, changed by kernels, one batch at a time.

A bucket that is dropped frees its pages at once. Nulls are not stored, so keys with nulls have separate maps, one
for each set of columns that are null. The number of values of a column tells whether a sum or an extreme has a
value. Sums, counts, and extremes of numbers and times take one pass over the rows each. No kernel computes with
texts and decimals, so their extremes are computed per batch and then put.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from peacefs.state.pages.page_set import PageSet
from peacefs.state.structures.arrays import identity
from peacefs.state.structures.columns import Column
from peacefs.state.structures.unordered_map import UnorderedMap

from .combiner import Combiner
from .interface import Accumulator

_NOTHING = "no key"
_VALUES = "values of "
#: Operations whose result is null if there are no values.
_OF_VALUES = ("sum", "min", "max", "last")


class PagedGroups:
    """The groups of one operator, in pages: the accumulators of each key, in buckets.

    A bucket has one map for each set of key columns that are null. The result of a scan of a bucket is kept until
    the bucket changes. `PagedState.groups` makes it; the operator calls it, one batch at a time.
    """

    def __init__(
        self,
        keys: pa.Schema,
        accumulators: Sequence[Accumulator],
        name: str,
        page_set: Callable[[str], PageSet],
        destroy: Callable[[str], None],
        recovered: Iterable[str],
    ) -> None:
        self._keys = keys
        self._accumulators = tuple(accumulators)
        self._name = name
        self._page_set, self._destroy = page_set, destroy
        self._schema = pa.schema([*keys, *(pa.field(each.name, each.type) for each in accumulators)])
        #: bucket -> bits of the key columns that are null -> its maps
        self._buckets: dict[int, dict[int, _Bucket]] = {}
        self._combiner = Combiner(_changed(accumulators))
        #: Scanned contents of buckets, until these change. Several windows read the same bucket.
        self._scanned: dict[int, list[pa.Table]] = {}
        for found in recovered:
            bucket, nulls, kind = found.removeprefix(f"{name}/").split("/")
            if kind == "numbers":
                self._bucket(int(bucket), int(nulls))

    def add(self, bucket: int, rows: pa.RecordBatch) -> None:
        self._scanned.pop(bucket, None)
        for nulls, part in self._by_nulls(rows):
            self._bucket(bucket, nulls).add(part)

    def admit(self, bucket: int, rows: pa.RecordBatch) -> pa.Table:
        self._scanned.pop(bucket, None)
        found = [self._keys.empty_table()]
        for nulls, part in self._by_nulls(rows):
            added, new = self._bucket(bucket, nulls).add(part)
            if len(new):
                # Combined rows lack the columns that are entirely null.
                columns = [
                    added.column(field.name).take(pa.array(new))
                    if field.name in added.schema.names
                    else pa.nulls(len(new), field.type)
                    for field in self._keys
                ]
                found.append(pa.Table.from_arrays(columns, schema=self._keys))
        return pa.concat_tables(found)

    def put(self, bucket: int, rows: pa.RecordBatch) -> None:
        self._scanned.pop(bucket, None)
        for nulls, part in self._by_nulls(rows):
            self._bucket(bucket, nulls).put(part)

    def size(self, bucket: int) -> int:
        return sum(len(part) for part in self._buckets.get(bucket, {}).values())

    def buckets(self) -> Sequence[int]:
        return sorted(self._buckets)

    def between(self, first: int, end: int) -> pa.Table:
        if end - first <= len(self._buckets):
            wanted = [bucket for bucket in range(first, end) if bucket in self._buckets]
        else:
            wanted = [bucket for bucket in self.buckets() if first <= bucket < end]
        parts = [part for bucket in wanted for part in self._scan(bucket, keep=end - first > 1)]
        table = pa.concat_tables([self._schema.empty_table(), *parts])
        if len(wanted) <= 1:
            return table
        merges = [(each.name, each.merge) for each in self._accumulators]
        merged = table.group_by(self._keys.names, use_threads=False).aggregate(merges)
        return merged.rename_columns(self._schema.names).cast(self._schema)

    def _scan(self, bucket: int, *, keep: bool) -> list[pa.Table]:
        if bucket in self._scanned:
            return self._scanned[bucket]
        parts = [part.scan() for _, part in sorted(self._buckets[bucket].items())]
        if keep:
            self._scanned[bucket] = parts
        return parts

    def find(self, bucket: int, keys: pa.Table) -> pa.Table:
        (rows,) = keys.combine_chunks().to_batches()
        if not any(rows.column(name).null_count for name in self._keys.names):
            return self._bucket(bucket, 0).find(rows)
        numbered = rows.append_column("__row", pa.array(np.arange(rows.num_rows)))
        parts, order = [], []
        for nulls, part in self._by_nulls(numbered):
            parts.append(self._bucket(bucket, nulls).find(part))
            order.append(part.column("__row").to_numpy())
        found = pa.concat_tables(parts)
        return found.take(pa.array(np.argsort(np.concatenate(order))))

    def remove(self, bucket: int, keys: pa.Table) -> None:
        self._scanned.pop(bucket, None)
        for rows in keys.combine_chunks().to_batches():
            for nulls, part in self._by_nulls(rows):
                self._bucket(bucket, nulls).remove(part)

    def drop_before(self, bucket: int) -> None:
        for gone in [number for number in self._buckets if number < bucket]:
            self._scanned.pop(gone, None)
            for part in self._buckets.pop(gone).values():
                part.destroy()

    def clear(self) -> None:
        self.drop_before(2**62)

    def _by_nulls(self, rows: pa.RecordBatch) -> Iterable[tuple[int, pa.RecordBatch]]:
        columns = [rows.column(name) for name in self._keys.names]
        if not any(column.null_count for column in columns):
            yield 0, rows
            return
        bits = np.zeros(rows.num_rows, np.int64)
        for place, column in enumerate(columns):
            bits |= np.asarray(column.is_null()).astype(np.int64) << place
        for nulls in np.unique(bits):
            yield int(nulls), rows.filter(pa.array(bits == nulls))

    def _bucket(self, bucket: int, nulls: int) -> _Bucket:
        parts = self._buckets.setdefault(bucket, {})
        if nulls not in parts:
            present = [name for place, name in enumerate(self._keys.names) if not nulls >> place & 1]
            prefix = f"{self._name}/{bucket}/{nulls}"
            parts[nulls] = _Bucket(
                self._schema, present, self._accumulators, prefix, self._page_set, self._destroy, self._combiner
            )
        return parts[nulls]


class _Bucket:
    """The accumulators of one bucket, for keys that are null in the same columns."""

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        accumulators: Sequence[Accumulator],
        prefix: str,
        page_set: Callable[[str], PageSet],
        destroy: Callable[[str], None],
        combiner: Combiner,
    ) -> None:
        self._combiner = combiner
        self._schema, self._keys, self._accumulators = schema, list(keys), accumulators
        self._prefix, self._destroy = prefix, destroy
        self._computed = computed(accumulators)
        self._changed = _changed(accumulators)
        self._other = [each for each in accumulators if each not in self._computed]
        key_fields = [schema.field(name) for name in keys] or [pa.field(_NOTHING, pa.int64())]
        names = [field.name for field in key_fields]
        numbers = [pa.field(each.name, each.type) for each in self._computed]
        made = page_set(f"{prefix}/numbers")
        self._numbers = UnorderedMap.create(made, pa.schema([*key_fields, *numbers]), names)
        self._others: UnorderedMap | None = None
        if self._other:
            fields = [pa.field(each.name, each.type) for each in self._other]
            self._others = UnorderedMap.create(
                page_set(f"{prefix}/others"), pa.schema([*key_fields, *fields]), names
            )

    def add(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch | pa.Table, NDArray[np.int64]]:
        """Add rows. Return the rows as added (perhaps combined), and the indices of those whose keys are new."""
        if self._others is not None:
            self._put_others(self._others, rows)
        combined = self._combiner.combine(rows, self._keys)
        if combined is None:
            changes = {each.name: (_change_of(each), _values_of(rows, each)) for each in self._changed}
            return rows, self._numbers.aggregate(self._keys_of(rows), changes)
        changes = {
            each.name: (_change_of(each), _filled(combined.column(each.name), each)) for each in self._changed
        }
        return combined, self._numbers.aggregate(self._keys_of(combined), changes)

    def put(self, rows: pa.RecordBatch) -> None:
        """Replace the accumulators of keys."""
        keys = self._keys_of(rows)
        numbers: dict[str, Any] = {}
        for each in self._computed:
            if each.name.startswith(_VALUES):
                # Only whether the number of values is zero matters.
                kept = next(
                    one for one in self._accumulators if one.operation in _OF_VALUES and one.column == each.column
                )
                numbers[each.name] = rows.column(kept.name).is_valid().cast(pa.int64())
            elif each.operation == "last":
                numbers[each.name] = rows.column(each.name).fill_null(_some(each.type))
            else:
                numbers[each.name] = _filled(rows.column(each.name), each)
        self._numbers.upsert(keys, numbers)
        if self._others is not None:
            others = {each.name: rows.column(each.name).fill_null(_some(each.type)) for each in self._other}
            self._others.upsert(keys, others)

    def __len__(self) -> int:
        return len(self._numbers)

    def scan(self) -> pa.Table:
        parts = [pa.Table.from_batches([batch]) for batch in self._numbers.scan()]
        if not parts:
            return self._schema.empty_table()
        numbers = pa.concat_tables(parts).combine_chunks()
        return self._table(numbers, self._keys_of(numbers))

    def find(self, rows: pa.RecordBatch) -> pa.Table:
        keys = self._keys_of(rows)
        found = pa.Table.from_batches([self._numbers.find(keys)])
        return self._table(found, keys).select([each.name for each in self._accumulators])

    def remove(self, rows: pa.RecordBatch) -> None:
        keys = self._keys_of(rows)
        self._numbers.remove(keys)
        if self._others is not None:
            self._others.remove(keys)

    def destroy(self) -> None:
        self._destroy(f"{self._prefix}/numbers")
        if self._others is not None:
            self._destroy(f"{self._prefix}/others")

    def _table(self, numbers: pa.Table, keys: Mapping[str, Any]) -> pa.Table:
        """Return rows of the whole schema. Sums and extremes without values are null."""
        others = pa.Table.from_batches([self._others.find(keys)]) if self._others is not None else None
        columns = []
        for field in self._schema:
            each = next((one for one in self._accumulators if one.name == field.name), None)
            if each is None:
                columns.append(keys[field.name] if field.name in keys else pa.nulls(numbers.num_rows, field.type))
                continue
            kept = others if others is not None and each in self._other else numbers
            column = kept.column(each.name)
            if each.operation in _OF_VALUES:
                absent = compute.equal(numbers.column(_VALUES + str(each.column)), 0)
                column = compute.if_else(absent, pa.scalar(None, each.type), column)
            columns.append(column)
        return pa.Table.from_arrays(columns, schema=self._schema)

    def _put_others(self, others: UnorderedMap, rows: pa.RecordBatch) -> None:
        """Merge the extremes of a batch with the stored ones."""
        keys = pa.Table.from_arrays(list(self._keys_of(rows).values()), names=list(self._keys_of(rows)))
        table = keys
        for each in self._other:
            table = table.append_column(each.name, rows.column(each.column))
        names = [each.name for each in self._other]
        made = table.group_by(keys.column_names, use_threads=False).aggregate(
            [(each.name, each.operation) for each in self._other]
        )
        made = made.rename_columns([*made.column_names[: len(keys.column_names)], *names]).combine_chunks()
        here = {name: made.column(name).combine_chunks() for name in keys.column_names}
        before, counts = others.find(here), self._numbers.find(here)
        put = {}
        for each in self._other:
            known = compute.fill_null(compute.greater(counts.column(_VALUES + str(each.column)), 0), False)
            old = compute.if_else(known, before.column(each.name), pa.scalar(None, each.type))
            value = _better(each, old, made.column(each.name).combine_chunks())
            # If there is no value, store any value: the number of values says that it does not count.
            put[each.name] = value.fill_null(_some(each.type)) if value.null_count else value
        others.upsert(here, put)

    def _keys_of(self, rows: pa.RecordBatch | pa.Table) -> dict[str, Any]:
        if not self._keys:
            return {_NOTHING: pa.array(np.zeros(rows.num_rows, np.int64))}
        return {name: rows.column(name) for name in self._keys}


def computes(kind: pa.DataType) -> bool:
    """Return True if kernels can compute with an Arrow type."""
    types = pa.types
    if types.is_float16(kind):
        return False
    is_time = types.is_temporal(kind) and kind.bit_width <= 64
    return bool(types.is_integer(kind) or types.is_floating(kind) or is_time)


def keeps(kind: pa.DataType) -> bool:
    """Return True if values of an Arrow type can be kept in pages."""
    types = pa.types
    texts = types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind)
    fixed = types.is_fixed_size_binary(kind) or types.is_decimal(kind) or types.is_boolean(kind)
    return bool(texts or fixed or types.is_large_binary(kind) or computes(kind))


def computed(accumulators: Sequence[Accumulator]) -> list[Accumulator]:
    """Return the accumulators that kernels compute, with the numbers of values that show whether a sum exists."""
    counted = dict.fromkeys(str(each.column) for each in accumulators if each.operation in _OF_VALUES)
    counts = [Accumulator(_VALUES + column, "values", pa.int64(), column) for column in counted]
    return [*(each for each in accumulators if computes(each.type)), *counts]


def _changed(accumulators: Sequence[Accumulator]) -> list[Accumulator]:
    """Return the accumulators that kernels compute and that rows change."""
    return [each for each in computed(accumulators) if each.operation != "noted"]


def _change_of(each: Accumulator) -> str:
    """Return the map operation that adds rows, or combined rows, to an accumulator."""
    return {"min": "min", "max": "max", "last": "put"}.get(each.operation, "add")


def _values_of(rows: pa.RecordBatch, each: Accumulator) -> Any:
    """Return the contribution of each row to an accumulator."""
    if each.operation == "rows":
        return 1
    values = rows.column(each.column)
    if each.operation == "values":
        return values.is_valid().cast(pa.int64()) if values.null_count else 1
    return _filled(values, each)


def _filled(values: pa.Array | pa.ChunkedArray, each: Accumulator) -> pa.Array:
    """Return values as they are stored, with each null replaced by the operation's neutral value."""
    if not values.null_count:
        return values if values.type == each.type else values.cast(each.type)
    dtype = Column(pa.field(each.name, each.type)).dtype
    nothing = pa.scalar(identity(dtype, each.operation), pa.from_numpy_dtype(dtype))
    return values.cast(each.type).fill_null(nothing.cast(each.type))


def _better(each: Accumulator, old: pa.Array, new: pa.Array) -> pa.Array:
    """Return the minimum or the maximum of each pair of values, ignoring nulls."""
    best = compute.min_element_wise if each.operation == "min" else compute.max_element_wise
    if pa.types.is_boolean(each.type):
        return best(old.cast(pa.uint8()), new.cast(pa.uint8())).cast(pa.bool_())
    return best(old, new)


def _some(kind: pa.DataType) -> pa.Scalar:
    """Return an arbitrary non-null value of a type."""
    if pa.types.is_fixed_size_binary(kind):
        return pa.scalar(bytes(kind.byte_width), kind)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.scalar("", kind)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.scalar(b"", kind)
    return pa.scalar(0).cast(kind)
