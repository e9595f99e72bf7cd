"""State in memory: Arrow batches, which never change, and Python's dictionaries, which a capture copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute

from .interface import Cell, Groups, Merge, RowQueue, StateCapture

# Partial aggregates of one bucket are merged when there are so many batches of them.
_PARTIALS_MAX = 16
_BUCKET = "bucket"


class MemoryState:
    """Structures of a unit; `parts` is what a capture gave, empty for a unit that begins."""

    def __init__(self, parts: Mapping[str, bytes] | None = None) -> None:
        self._parts = dict(parts or {})
        self._structures: dict[str, _Cell | _Rows | _Groups | _Map] = {}

    def cell(self, name: str, initial: Any) -> Cell:
        cell = _Cell(initial if name not in self._parts else msgspec.msgpack.decode(self._parts[name]))
        return self._add(name, cell)

    def rows(self, name: str, schema: pa.Schema) -> RowQueue:
        return self._add(name, _Rows(schema, self._parts.get(name)))

    def groups(self, name: str, keys: pa.Schema, accumulators: Sequence[tuple[pa.Field, Merge]]) -> Groups:
        return self._add(name, _Groups(keys, accumulators, self._parts.get(name)))

    def mapping(self, name: str) -> MutableMapping[Any, Any]:
        return self._add(name, _Map(self._parts.get(name))).entries

    def capture(self) -> StateCapture:
        return _Capture({name: structure.capture() for name, structure in self._structures.items()})

    def _add(self, name: str, structure: _Structure) -> _Structure:
        assert name not in self._structures, f"two structures have the name {name}"
        self._structures[name] = structure
        return structure


class _Capture:
    def __init__(self, writers: Mapping[str, Callable[[], bytes]]) -> None:
        self._writers = writers

    def parts(self) -> Mapping[str, bytes]:
        return {name: write() for name, write in self._writers.items()}


class _Cell:
    def __init__(self, value: Any) -> None:
        self._value = value

    def get(self) -> Any:
        return self._value

    def set(self, value: Any) -> None:
        self._value = value

    def capture(self) -> Callable[[], bytes]:
        value = self._value
        return lambda: msgspec.msgpack.encode(value)


class _Map:
    def __init__(self, part: bytes | None) -> None:
        pairs = [] if part is None else msgspec.msgpack.decode(part)
        self.entries: dict[Any, Any] = {_hashable(key): value for key, value in pairs}

    def capture(self) -> Callable[[], bytes]:
        pairs = list(self.entries.items())
        return lambda: msgspec.msgpack.encode(pairs)


class _Rows:
    def __init__(self, schema: pa.Schema, part: bytes | None) -> None:
        self._schema = schema
        self._batches: list[pa.RecordBatch] = [] if part is None else _read(part)

    def append(self, rows: pa.RecordBatch) -> None:
        self._batches.append(rows)

    def table(self) -> pa.Table:
        return pa.Table.from_batches(self._batches, self._schema)

    def replace(self, rows: pa.Table) -> None:
        self._batches = rows.combine_chunks().to_batches()

    def capture(self) -> Callable[[], bytes]:
        batches = list(self._batches)
        return lambda: _write(self._schema, batches)


class _Groups:
    def __init__(
        self, keys: pa.Schema, accumulators: Sequence[tuple[pa.Field, Merge]], part: bytes | None
    ) -> None:
        self._keys = list(keys.names)
        self._columns = [*self._keys, *(field.name for field, _ in accumulators)]
        self._merges = [(field.name, merge) for field, merge in accumulators]
        self._schema = pa.schema([*keys, *(field for field, _ in accumulators)])
        self._buckets: dict[int, list[pa.RecordBatch]] = {}
        if part is not None:
            for rows in _read(part):
                self.merge(rows)

    def merge(self, partials: pa.RecordBatch) -> None:
        buckets = partials.column(_BUCKET)
        for bucket in buckets.unique().to_pylist():
            rows = partials.filter(pa.compute.equal(buckets, bucket)).select(self._columns)
            here = self._buckets.setdefault(bucket, [])
            here.append(rows)
            if len(here) >= _PARTIALS_MAX:
                here[:] = self._merged(here).to_batches()

    def buckets(self) -> Sequence[int]:
        return sorted(self._buckets)

    def between(self, first: int, end: int) -> pa.Table:
        if end - first <= len(self._buckets):
            found = [self._buckets[bucket] for bucket in range(first, end) if bucket in self._buckets]
        else:
            found = [self._buckets[bucket] for bucket in self.buckets() if first <= bucket < end]
        return self._merged([rows for batches in found for rows in batches])

    def drop_before(self, bucket: int) -> None:
        for gone in [number for number in self._buckets if number < bucket]:
            del self._buckets[gone]

    def capture(self) -> Callable[[], bytes]:
        buckets = [(bucket, list(batches)) for bucket, batches in self._buckets.items()]
        schema = self._schema.insert(0, pa.field(_BUCKET, pa.int64()))

        def write() -> bytes:
            return _write(
                schema,
                [
                    pa.RecordBatch.from_arrays(
                        [pa.repeat(pa.scalar(bucket, pa.int64()), rows.num_rows), *rows.columns], schema=schema
                    )
                    for bucket, batches in buckets
                    for rows in batches
                ],
            )

        return write

    def _merged(self, batches: list[pa.RecordBatch]) -> pa.Table:
        table = pa.Table.from_batches(batches, self._schema)
        if len(batches) <= 1:
            return table
        merged = table.group_by(self._keys, use_threads=False).aggregate(self._merges)
        return merged.rename_columns(self._columns).cast(self._schema).combine_chunks()


_Structure = TypeVar("_Structure", _Cell, _Rows, _Groups, _Map)


def _hashable(key: Any) -> Any:
    return tuple(_hashable(part) for part in key) if isinstance(key, list) else key


def _write(schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for rows in batches:
            writer.write_batch(rows)
    return bytes(sink.getvalue())


def _read(part: bytes) -> list[pa.RecordBatch]:
    with pa.ipc.open_stream(part) as reader:
        return list(reader)
