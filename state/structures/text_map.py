"""A RecordMap with columns of strings or bytes.

Records still have a fixed width. In the key, a text is replaced by a hash of two words under the map's secret, so
that collisions do not occur in practice (decision 34). The text itself is an entry of a heap page, to which a
hidden column of the value refers. Texts of the value are stored the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from peacefs.protocol.errors import RecordRefused
from peacefs.state.kernels import fixed_map, texts
from peacefs.state.limits import state_scan_records
from peacefs.state.pages.page_set import PageSet

from .arrays import changeable
from .heap import Heap, TextColumn, Texts
from .record_map import RecordMap
from .records import Words, named

# Indexes into `_saved`.
_LAST: Final = 8
_SECRET: Final = 9
_HIDDEN: Final = "\0"


class TextMap(RecordMap):
    """A `RecordMap` whose key or value contains strings or bytes; see the module for the layout.

    Each reference in a record leads to a living entry of the heap. `UnorderedMap.create` makes it.
    """

    def __init__(self, page_set: PageSet, schema: pa.Schema, key: Sequence[str]) -> None:
        self._texts = {each.name: TextColumn(each) for each in schema if TextColumn.takes(each.type)}
        self._of_key = [name for name in self._texts if name in key]
        self._numbers = {name: number for number, name in enumerate(self._texts)}
        fields = []
        for field in schema:
            if field.name in self._of_key:
                fields.append(pa.field(field.name, pa.binary(16)))
            elif field.name in self._texts:
                fields.append(pa.field(field.name, pa.int64()))
            else:
                fields.append(field)
        fields += [pa.field(_HIDDEN + name, pa.int64()) for name in self._of_key]
        super().__init__(page_set, pa.schema(fields), key)
        self.schema = schema
        self._heap = Heap(page_set, self._key.words)
        self._names = [field.name for field in schema if field.name not in key]
        #: For each text column, the word of a record that holds the reference to the text.
        self._places = {}
        for name in self._texts:
            _, offset = self._value.place_of(_HIDDEN + name if name in self._of_key else name)
            self._places[name] = self._key.words + offset // 8

    # -- batches -----------------------------------------------------------------------------------

    def upsert(self, keys: Any, values: Any) -> None:
        rows, key_texts = self._rows_of(keys)
        given = named(values, self._names)
        value_texts = {name: self._checked(name, given[name]) for name in self._texts if name not in self._of_key}
        length = len(rows)
        fixed = given | dict.fromkeys(value_texts, np.zeros(length, np.int64))
        fixed |= {_HIDDEN + name: np.zeros(length, np.int64) for name in self._of_key}
        packed = changeable(self._value.pack(fixed))
        if len(packed) != length or any(len(each) != length for each in value_texts.values()):
            raise RecordRefused(f"{length} keys and other numbers of values were given")

        def put(positions: Words, start: int, stop: int) -> None:
            here = positions[start:stop]
            # Of two values for one key only the later is stored.
            _, last = np.unique(here[::-1], return_index=True)
            chosen = stop - 1 - last
            at = positions[chosen]
            old = [self._flat[at + self._places[name]] for name in value_texts]
            for name, each in value_texts.items():
                place = self._places[name] - self._key.words
                packed[chosen, place] = self._heap.store(self._numbers[name], rows, each, chosen)
            for name in self._of_key:
                packed[chosen, self._places[name] - self._key.words] = self._flat[at + self._places[name]]
            self._flat[at[:, None] + np.arange(self._key.words, self._key.words + self._value.words)] = packed[
                chosen
            ]
            if old:
                self._heap.free(np.concatenate(old))

        self._change_texts(rows, self._zeros, put, key_texts | value_texts, key_texts)

    def aggregate(self, keys: Any, changes: Any) -> Words:
        rows, key_texts = self._rows_of(keys)
        begin = np.zeros(max(1, self._value.words), np.int64)
        for name in changes:
            if name in self._texts or name.startswith(_HIDDEN):
                raise RecordRefused(f"column {name} holds texts, in which nothing can be computed")
        steps = [
            self._step(name, operation, numbers, len(rows), begin)
            for name, (operation, numbers) in changes.items()
        ]

        def apply(positions: Words, start: int, stop: int) -> None:
            for kernel, memory, per_word, offset, items in steps:
                kernel(memory, positions, per_word, offset, items, start, stop)

        return np.flatnonzero(self._change_texts(rows, begin, apply, key_texts, key_texts))

    def find(self, keys: Any) -> pa.RecordBatch:
        values, found = self._find(self._rows_of(keys)[0])
        arrays = [pa.array(found)]
        missing = None if found.all() else pa.array(~found)
        for name, array in zip(self._names, self._value_arrays(values), strict=True):
            if missing is not None:
                array = pc.if_else(missing, pa.scalar(None, self.schema.field(name).type), array)
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, names=["found", *self._names])

    def find_numpy(self, keys: Any) -> tuple[NDArray[np.bool_], dict[str, NDArray[Any]]]:
        values, found = self._find(self._rows_of(keys)[0])
        arrays = zip(self._names, self._value_arrays(values), strict=True)
        return found, {name: array.to_numpy(zero_copy_only=False) for name, array in arrays}

    def remove(self, keys: Any) -> NDArray[np.bool_]:
        return self._remove_rows(self._rows_of(keys)[0])

    def scan(self, batch_records: int = state_scan_records) -> Iterator[pa.RecordBatch]:
        for keys, values in self._scan(batch_records):
            arrays = [*self._key_arrays(keys, values), *self._value_arrays(values)]
            yield pa.RecordBatch.from_arrays(arrays, names=[*self.key, *self._names])

    def scan_numpy(self, batch_records: int = state_scan_records) -> Iterator[dict[str, NDArray[Any]]]:
        for batch in self.scan(batch_records):
            yield {name: batch.column(name).to_numpy(zero_copy_only=False) for name in batch.schema.names}

    # -- the mapping interface ----------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        values, found = self._find(self._row_of(key)[0])
        if not found[0]:
            raise KeyError(key)
        return _one([array[0].as_py() for array in self._value_arrays(values)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self.upsert(_column_each(key, self.key), _column_each(value, self._names))

    def __delitem__(self, key: Any) -> None:
        if not self._remove_rows(self._row_of(key)[0])[0]:
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return bool(self._find(self._row_of(key)[0])[1][0])

    def __iter__(self) -> Iterator[Any]:
        for keys, values in self._scan(state_scan_records):
            yield from map(
                _one, zip(*(array.to_pylist() for array in self._key_arrays(keys, values)), strict=True)
            )

    # -- inside ------------------------------------------------------------------------------------

    def _begin(self) -> None:
        super()._begin()
        self._heap.last = 0
        self._heap.sparse.clear()
        self._saved[_SECRET : _SECRET + 2] = self._pages.secret

    def _recover(self) -> None:
        super()._recover()
        self._heap.last = int(self._saved[_LAST])

    def _before_saving(self) -> None:
        self._saved[_LAST] = self._heap.last

    def _checked(self, name: str, given: Any) -> Texts:
        found = self._texts[name].texts_of(given)
        self._heap.check(self._texts[name], found)
        return found

    def _rows_of(self, keys: Any) -> tuple[Words, dict[str, Texts]]:
        """Return rows of key words, and the key's texts."""
        given = named(keys, self.key)
        found = {name: self._checked(name, given[name]) for name in self._of_key}
        hashed = {}
        for name, each in found.items():
            hashes = np.empty((len(each), 2), np.int64)
            texts.hash_texts(each.data, each.offsets, self._saved[_SECRET : _SECRET + 2], hashes)
            hashed[name] = hashes.reshape(-1).view("V16")
        return changeable(self._key.pack(given | hashed)), found

    def _row_of(self, key: Any) -> tuple[Words, dict[str, Texts]]:
        return self._rows_of(_column_each(key, self.key))

    def _change_texts(
        self, rows: Words, initial: Words, apply: Any, stored: dict[str, Texts], key_texts: dict[str, Texts]
    ) -> NDArray[np.bool_]:
        """Do as `_change`, with room for the stored texts. A new record gets the texts of its key first."""

        inserted = np.zeros(len(rows), np.bool_)

        def name_and_apply(positions: Words, start: int, stop: int) -> None:
            new = start + np.flatnonzero(inserted[start:stop])
            if len(new):
                for name, each in key_texts.items():
                    stored_at = self._heap.store(self._numbers[name], rows, each, new)
                    self._flat[positions[new] + self._places[name]] = stored_at
            apply(positions, start, stop)

        def room(start: int, stop: int) -> int:
            return sum(self._heap.pages_for(each, start, stop) for each in stored.values())

        self._change(rows, fixed_map.INSERT, initial, name_and_apply, room, inserted)
        self._move_sparse()
        return inserted

    def _remove_rows(self, rows: Words) -> NDArray[np.bool_]:
        positions = np.empty(len(rows), np.int64)
        self._pages.settle()
        self._locate(rows, positions)
        there = np.unique(positions[positions >= 0])
        references = np.concatenate([self._flat[there + place] for place in self._places.values()])
        removed = super()._remove_rows(rows)
        self._heap.free(references)
        self._move_sparse()
        return removed

    def _move_sparse(self) -> None:
        """Move the living entries out of pages that are mostly dead, and release these pages."""
        while self._heap.sparse:
            number = min(self._heap.sparse)
            references, of_columns, keys = self._heap.living(number)
            self._frames.ensure(4)
            for name, column in self._numbers.items():
                here = np.flatnonzero(of_columns == column)
                if not len(here):
                    continue
                found = self._heap.fetch(references[here])
                rows = np.ascontiguousarray(keys[here])
                self._frames.ensure(self._heap.pages_for(found, 0, len(found)))
                moved = self._heap.store(column, rows, found, np.arange(len(found)))

                def put(
                    positions: Words, start: int, stop: int, moved: Words = moved, place: int = self._places[name]
                ) -> None:
                    self._flat[positions[start:stop] + place] = moved[start:stop]

                self._change(rows, fixed_map.CHANGE, self._zeros, put)
            self._heap.release(number)

    def _key_arrays(self, keys: Words, values: Words) -> list[pa.Array]:
        fixed = dict(zip(self._key.names, self._key.arrow_of(keys), strict=True))
        return [self._text_array(name, values) if name in self._of_key else fixed[name] for name in self.key]

    def _value_arrays(self, values: Words) -> list[pa.Array]:
        fixed = dict(zip(self._value.names, self._value.arrow_of(values), strict=True))
        return [self._text_array(name, values) if name in self._texts else fixed[name] for name in self._names]

    def _text_array(self, name: str, values: Words) -> pa.Array:
        references = np.ascontiguousarray(values[:, self._places[name] - self._key.words])
        return self._texts[name].arrow_of(self._heap.fetch(references))


def _column_each(value: Any, names: Sequence[str]) -> dict[str, list[Any]]:
    parts = (value,) if len(names) == 1 else value
    if not isinstance(parts, tuple | list) or len(parts) != len(names):
        raise RecordRefused(f"{value!r} is not a tuple of {', '.join(names) or 'nothing'}")
    return {name: [part] for name, part in zip(names, parts, strict=True)}


def _one(parts: Sequence[Any]) -> Any:
    return parts[0] if len(parts) == 1 else tuple(parts)
