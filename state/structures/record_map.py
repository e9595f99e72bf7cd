"""Records of fixed width by key: linear hashing over pages (SGuard, Table 3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from peacefs.protocol.errors import PagesExhausted, RecordRefused
from peacefs.state.kernels import columns, fixed_map
from peacefs.state.kernels.places import (
    DONE,
    GROW,
    HEADER_WORDS,
    NO_FRAMES,
    NO_PAGE,
    OVERFLOW,
    STATUS,
    WORD_A,
    WORD_COUNT,
    WORD_LAYOUT,
    WORD_NEXT,
)
from peacefs.state.limits import state_scan_records
from peacefs.state.pages.frames import FrameNumbers
from peacefs.state.pages.page_set import LAYOUT_MASK, SUPER_PAGE, PageSet

from .arrays import changeable, identity
from .records import Words, split_schema
from .structure import Structure

# Records are looked up and changed in blocks of this size, which fit into the processor's cache.
state_block_records: Final = 4096


_BUCKET: Final = 16
_OVERFLOW: Final = 17

# The fullest bucket has 1.45 times the records of the average one, and is split before it exceeds this fill.
_FULLEST: Final = 0.85
_UNEVEN: Final = 1.45
# A page takes no more records above this fill, so that every search finds an empty slot.
_FILL_MAX: Final = 15 / 16
# The share of its size by which a map grows at a time.
_GROWTH: Final = 1 / 16

Aggregates = Mapping[str, tuple[str, Any]]


class RecordMap(Structure, MutableMapping[Any, Any]):
    """Unordered records by key, for `UnorderedMap`. A key or value of several columns is a tuple in Python.

    Batches are Arrow arrays or record batches, NumPy arrays, or sequences. Float keys are compared by their bits,
    except that -0.0 equals 0.0 and all NaN are one key. Buckets `first` to `2 * first - 1` exist, each a chain of
    pages that `_directory` begins.
    """

    kind: ClassVar[str] = "UnorderedMap"

    def __init__(self, page_set: PageSet, schema: pa.Schema, key: Sequence[str]) -> None:
        super().__init__(page_set, schema, key)
        if not key:
            raise RecordRefused("a map needs a key: the names of one or more columns")
        self._key, self._value = split_schema(schema, key)
        record_words = self._key.words + self._value.words
        room = page_set.frames.page_bytes // 8 - HEADER_WORDS
        capacity = room * 64 // (record_words * 64 + 1)
        while capacity * record_words + -(-capacity // 64) > room:
            capacity -= 1
        if capacity < 16:
            raise RecordRefused(
                f"a record of {record_words * 8} bytes is too long for pages of {room * 8}: give larger"
            )
        fill_max = int(capacity * _FILL_MAX)
        first_slot = HEADER_WORDS + -(-capacity // 64)
        self._shape = np.array([self._key.words, record_words, capacity, fill_max, first_slot], np.int64)
        self._state = self._saved[: fixed_map.STATE]
        self._directory: FrameNumbers = np.full(1, NO_PAGE, np.int32)
        self._flat = page_set.frames.words.reshape(-1)
        self._memory: dict[np.dtype[Any], NDArray[Any]] = {}
        self._zeros = np.zeros(max(1, self._value.words), np.int64)
        self._none_inserted = np.zeros(0, np.bool_)

    # -- batches, for operators --------------------------------------------------------------------

    def upsert(self, keys: Any, values: Any) -> None:
        """Insert or replace values. If a key occurs twice, the later value counts.

        Raises RecordRefused before anything changes, PagesExhausted after a part of the batch.
        """
        rows = self._key_rows(keys)
        packed = (
            changeable(self._value.pack(values)) if self._value.columns else np.zeros((len(rows), 0), np.int64)
        )
        if len(packed) != len(rows):
            raise RecordRefused(f"{len(rows)} keys and {len(packed)} values were given")

        def put(positions: Words, start: int, stop: int) -> None:
            columns.scatter(self._flat, positions, self._key.words, packed, start, stop)

        self._change(rows, fixed_map.INSERT, self._zeros, put)

    def find(self, keys: Any) -> pa.RecordBatch:
        """Return a row per key: `found`, and the columns of the value, null if there is no record."""
        rows = self._key_rows(keys)
        values, found = self._find(rows)
        arrays = [pa.array(found)]
        for column, array in zip(self._value.columns, self._value.arrow_of(values), strict=True):
            if not found.all():
                mask = pa.array(~found)
                array = pc.if_else(mask, pa.scalar(None, column.type), array)
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, names=["found", *self._value.names])

    def find_numpy(self, keys: Any) -> tuple[NDArray[np.bool_], dict[str, NDArray[Any]]]:
        """Return which keys exist, and the items of each column, zero for missing keys."""
        values, found = self._find(self._key_rows(keys))
        return found, self._value.unpack(values)

    def add_at(self, keys: Any, deltas: Any, column: str | None = None) -> None:
        """Add to a column of each key's record; a missing record begins with zeros.

        `deltas` is one number per key, or one number for all. `column` is optional if there is only one.
        """
        if column is None:
            shown = self._value.shown
            if len(shown) != 1:
                raise RecordRefused(f"say which column to add to: one of {', '.join(shown)}")
            column = shown[0]
        self.aggregate(keys, {column: ("add", deltas)})

    def aggregate(self, keys: Any, changes: Aggregates) -> Words:
        """Change columns of each key's record, all in one pass: `{column: (operation, numbers)}`.

        Operations are `add`, `min`, `max` and `put`; numbers are one per key, or for `add` also one for all. A
        missing record begins with 0, or for `min` and `max` with the type's greatest or least value. Returns the
        indexes of keys that were missing, each at its first occurrence.
        """
        rows = self._key_rows(keys)
        begin = np.zeros(max(1, self._value.words), np.int64)
        steps = [
            self._step(name, operation, numbers, len(rows), begin)
            for name, (operation, numbers) in changes.items()
        ]

        def apply(positions: Words, start: int, stop: int) -> None:
            for kernel, memory, per_word, offset, items in steps:
                kernel(memory, positions, per_word, offset, items, start, stop)

        return np.flatnonzero(self._change(rows, fixed_map.INSERT, begin, apply))

    def remove(self, keys: Any) -> NDArray[np.bool_]:
        """Remove records; return which keys existed."""
        return self._remove_rows(self._key_rows(keys))

    def _remove_rows(self, rows: Words) -> NDArray[np.bool_]:
        removed = np.zeros(len(rows), np.bool_)
        at = 0
        self._pages.settle()
        while at < len(rows):
            at = fixed_map.remove(*self._arrays(), self._flat_keys(rows), at, len(rows), removed)
            if self._frames.counters[STATUS] == NO_FRAMES:
                self._make_room(at)
        return removed

    def scan(self, batch_records: int = state_scan_records) -> Iterator[pa.RecordBatch]:
        """Yield all records in batches of about `batch_records`. The map must not change meanwhile."""
        names = [*self._key.names, *self._value.names]
        for keys, values in self._scan(batch_records):
            yield pa.RecordBatch.from_arrays(
                [*self._key.arrow_of(keys), *self._value.arrow_of(values)], names=names
            )

    def scan_numpy(self, batch_records: int = state_scan_records) -> Iterator[dict[str, NDArray[Any]]]:
        """Yield all records as NumPy items per column, in batches of about `batch_records`."""
        for keys, values in self._scan(batch_records):
            yield self._key.unpack(keys) | self._value.unpack(values)

    # -- the mapping interface ----------------------------------------------------------------------

    def __len__(self) -> int:
        return int(self._state[fixed_map.COUNT])

    def __getitem__(self, key: Any) -> Any:
        values, found = self._find(self._key_row(key))
        if not found[0]:
            raise KeyError(key)
        return self._value.unpack_one(values[0])

    def __setitem__(self, key: Any, value: Any) -> None:
        rows, row = self._key_row(key), self._value.pack_one(value).reshape(1, -1)

        def put(positions: Words, start: int, stop: int) -> None:
            columns.scatter(self._flat, positions, self._key.words, row, start, stop)

        self._change(rows, fixed_map.INSERT, self._zeros, put)

    def __delitem__(self, key: Any) -> None:
        removed = np.zeros(1, np.bool_)
        self._pages.settle()
        row = self._flat_keys(self._key_row(key))
        while not fixed_map.remove(*self._arrays(), row, 0, 1, removed):
            self._make_room(0)
        if not removed[0]:
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return bool(self._find(self._key_row(key))[1][0])

    def __iter__(self) -> Iterator[Any]:
        """Yield the keys. The map must not change meanwhile."""
        for keys, _ in self._scan(state_scan_records):
            for row in keys:
                yield self._key.unpack_one(row)

    def clear(self) -> None:
        """Remove all records and release their pages."""
        self._pages.settle()
        self._pages.clear()
        self._begin()

    # -- inside ------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._state[:] = 0
        self._state[fixed_map.FIRST] = 1
        self._directory = np.full(1, self._pages.allocate(_BUCKET), np.int32)
        self._pages.writable(int(self._directory[0]))[WORD_A] = 1
        self._set_limit()

    def _recover(self) -> None:
        first = int(self._state[fixed_map.FIRST])
        self._directory = np.full(1 << (first - 1).bit_length(), NO_PAGE, np.int32)
        for page in self._pages.pages:
            words = self._pages.resolve(page)
            if page != SUPER_PAGE and words[WORD_LAYOUT] & LAYOUT_MASK == _BUCKET:
                self._directory[int(words[WORD_A]) & (len(self._directory) - 1)] = page
        self._set_limit()

    def _set_limit(self) -> None:
        full = self._shape[fixed_map.CAPACITY] * _FULLEST / _UNEVEN
        self._state[fixed_map.COUNT_MAX] = max(1, int(self._state[fixed_map.FIRST] * full))

    def _key_rows(self, keys: Any) -> Words:
        return changeable(self._key.pack(keys))

    def _key_row(self, key: Any) -> Words:
        return self._key.pack_one(key).reshape(1, -1)

    def _arrays(self) -> tuple[Any, ...]:
        frames = self._frames
        return (
            frames.words,
            self._pages.table,
            frames.flags,
            frames.owner,
            frames.free,
            frames.counters,
            self._directory,
            self._state,
            self._shape,
        )

    def _flat_keys(self, rows: Words) -> Words:
        return rows.reshape(-1)

    def _find(self, rows: Words) -> tuple[Words, NDArray[np.bool_]]:
        positions = np.empty(len(rows), np.int64)
        self._locate(rows, positions)
        values = np.zeros((len(rows), self._value.words), np.int64)
        found = np.zeros(len(rows), np.bool_)
        columns.gather(self._flat, positions, self._key.words, values, found)
        return values, found

    def _locate(self, rows: Words, positions: Words) -> None:
        keys, none = self._flat_keys(rows), self._none_inserted
        fixed_map.locate(*self._arrays(), keys, self._zeros, fixed_map.FIND, 0, len(rows), positions, none)

    def _change(
        self,
        rows: Words,
        mode: int,
        initial: Words,
        apply: Any,
        room: Any = None,
        inserted: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.bool_]:
        """Locate keys block by block, and call `apply` on each block while its records are in the cache.

        `room` returns how many additional pages a range of rows may need. Returns which rows were inserted, in the
        array `inserted` if given; `apply` may read it.
        """
        keys = self._flat_keys(rows)
        positions = np.empty(len(rows), np.int64)
        if inserted is None:
            inserted = np.zeros(len(rows), np.bool_)
        at = 0
        while at < len(rows):
            # Pages that were written meanwhile need no clone any more.
            self._pages.settle()
            stop = min(at + state_block_records, len(rows))
            if room is not None:
                while stop - at > 1 and room(at, stop) > self._frames.count - self._frames.used:
                    stop = at + (stop - at) // 2
                self._make_room(at, room(at, stop))
            came = fixed_map.locate(*self._arrays(), keys, initial, mode, at, stop, positions, inserted)
            if came > at:
                apply(positions, at, came)
            at = came
            status = self._frames.counters[STATUS]
            if status == DONE:
                continue
            if status == GROW:
                self._grow(len(rows) - at, at)
            elif status == OVERFLOW:
                self._overflow(at)
            else:
                self._make_room(at)
        return inserted

    def _make_room(self, applied: int, frames: int = 1) -> None:
        try:
            self._frames.ensure(frames)
        except PagesExhausted as error:
            raise PagesExhausted(f"{error.message}; {applied} records were applied", applied=applied) from None

    def _overflow(self, applied: int) -> None:
        """Add a page to a bucket, after its last page."""
        self._make_room(applied, 2)
        last = int(self._state[fixed_map.FULL_PAGE])
        page = self._pages.allocate(_OVERFLOW)
        self._pages.writable(last)[WORD_NEXT] = page

    # -- growing -----------------------------------------------------------------------------------

    def _grow(self, to_come: int, applied: int) -> None:
        first = int(self._state[fixed_map.FIRST])
        per_bucket = max(1, int(self._state[fixed_map.COUNT_MAX]) // first)
        for _ in range(max(1, min(int(first * _GROWTH), to_come // per_bucket))):
            self._split_first_bucket(applied)

    def _split_first_bucket(self, applied: int) -> None:
        """Replace the first bucket, which is the fullest, by two buckets after the last."""
        first = int(self._state[fixed_map.FIRST])
        if first + 1 > len(self._directory):
            self._double_directory(first)
        ring = len(self._directory) - 1
        page = int(self._directory[first & ring])
        chain = self._chain(page)
        # Ensure room first: nothing may fail while records are in neither page. All may go to one bucket.
        self._make_room(applied, 1 + self._pages.locked(chain))
        added = self._pages.allocate(_BUCKET)
        keys, values = self._drain(chain)
        self._directory[2 * first & ring] = page
        self._directory[(2 * first + 1) & ring] = added
        self._pages.writable(page)[WORD_A] = 2 * first
        self._pages.writable(added)[WORD_A] = 2 * first + 1
        self._state[fixed_map.FIRST] = first + 1
        self._state[fixed_map.FIRST_BITS] = (first + 1).bit_length() - 1
        self._state[fixed_map.COUNT] -= len(keys)
        self._state[fixed_map.COUNT_MAX] = np.iinfo(np.int64).max

        def put(positions: Words, start: int, stop: int) -> None:
            columns.scatter(self._flat, positions, self._key.words, values, start, stop)

        self._change(keys, fixed_map.INSERT, self._zeros, put)
        self._set_limit()

    def _chain(self, page: int) -> list[int]:
        """Return the pages of the bucket that begins with `page`."""
        chain = [page]
        while (following := int(self._pages.resolve(chain[-1])[WORD_NEXT])) != NO_PAGE:
            chain.append(following)
        return chain

    def _drain(self, chain: Sequence[int]) -> tuple[Words, Words]:
        """Take all records out of a bucket, and release its pages except the first."""
        keys, values = self._collect(chain, sum(int(self._pages.resolve(page)[WORD_COUNT]) for page in chain))
        words = self._pages.writable(chain[0])
        words[WORD_NEXT] = NO_PAGE
        words[WORD_COUNT] = 0
        words[HEADER_WORDS:] = 0
        for page in chain[1:]:
            self._pages.release(page)
        return keys, values

    def _double_directory(self, first: int) -> None:
        longer = np.full(2 * len(self._directory), NO_PAGE, np.int32)
        buckets = np.arange(first, 2 * first)
        longer[buckets & (len(longer) - 1)] = self._directory[buckets & (len(self._directory) - 1)]
        self._directory = longer

    # -- reading all -------------------------------------------------------------------------------

    def _scan(self, batch_records: int) -> Iterator[tuple[Words, Words]]:
        batch: list[int] = []
        count = 0
        for page in self._pages.pages:
            words = self._pages.resolve(page)
            if words[WORD_LAYOUT] & LAYOUT_MASK not in (_BUCKET, _OVERFLOW):
                continue
            of_page = int(words[WORD_COUNT])
            if batch and count + of_page > batch_records:
                yield self._collect(batch, count)
                batch, count = [], 0
            batch.append(page)
            count += of_page
        if count:
            yield self._collect(batch, count)

    def _collect(self, pages: Sequence[int], count: int) -> tuple[Words, Words]:
        keys = np.empty((count, self._key.words), np.int64)
        values = np.empty((count, self._value.words), np.int64)
        at = 0
        for page in pages:
            at = fixed_map.collect(self._frames.words, int(self._pages.table[page]), self._shape, keys, values, at)
        return keys, values

    # -- aggregates --------------------------------------------------------------------------------

    def _step(self, name: str, operation: str, numbers: Any, count: int, begin: Words) -> tuple[Any, ...]:
        """Return a kernel and its arguments, and write the initial value of a new record to `begin`."""
        column, offset = self._value.place_of(name)
        if not column.numeric:
            raise RecordRefused(f"column {name} is of type {column.type}, in which nothing can be computed")
        kernels = {"add": columns.add, "min": columns.minimum, "max": columns.maximum, "put": columns.put}
        if operation not in kernels:
            raise RecordRefused(f"there is no operation {operation}; there are: {', '.join(kernels)}")
        if operation == "add" and isinstance(numbers, int | float):
            if isinstance(numbers, float) and column.dtype.kind != "f":
                raise RecordRefused(f"column {name} is of type {column.type} and was given {numbers}")
            kernel: Any = columns.add_one
            items: Any = column.dtype.type(numbers)
        else:
            kernel, items = kernels[operation], changeable(column.items_of(numbers))
            if len(items) != count:
                raise RecordRefused(f"{count} keys and {len(items)} numbers for column {name} were given")
        begin.view(column.dtype)[offset // column.dtype.itemsize] = identity(column.dtype, operation)
        memory = self._memory.setdefault(column.dtype, self._flat.view(column.dtype))
        per_word = 8 // column.dtype.itemsize
        where = self._key.words * per_word + offset // column.dtype.itemsize
        return kernel, memory, per_word, where, items
