"""OrderedMap: a B+-tree of height two over pages: sorted keys, records of fixed width (SGuard, Table 3).

Leaves are pages of records sorted by key. The root holds the first key of each leaf. It is a flat array beside the
pages, rebuilt from them in any order after a recovery, so leaves need no links. The paper uses a T-tree, whose
search follows a pointer per level, each a cache miss. Here one binary search in the root, which fits into the
cache for gigabytes of leaves, is followed by one in a page.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any, ClassVar, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from peacefs.protocol.errors import RecordRefused
from peacefs.state.kernels.places import HEADER_WORDS, WORD_COUNT
from peacefs.state.limits import state_scan_records
from peacefs.state.pages.frames import FrameNumbers
from peacefs.state.pages.page_set import SUPER_PAGE, PageSet

from .records import Words, split_schema
from .structure import Structure

_LEAF: Final = 21
_SIGN: Final = np.int64(-(2**63))
# How full leaves are after a full leaf is divided.
_DIVIDED_FILL: Final = 0.6


class OrderedMap(Structure, MutableMapping[Any, Any]):
    """A sorted map in a page set. The key is one column of numbers or times; NaN sorts after all other floats.

    Leaves are sorted and disjoint; `_lows` holds their least keys, ascending. Operators call the batch methods.
    """

    kind: ClassVar[str] = "OrderedMap"

    def __init__(self, page_set: PageSet, schema: pa.Schema, key: Sequence[str]) -> None:
        super().__init__(page_set, schema, key)
        self._key, self._value = split_schema(schema, key)
        if len(key) != 1 or self._key.columns[0].dtype.kind not in "iufb":
            raise RecordRefused("the key of an ordered map is one column of numbers or times")
        self._row_words = 1 + self._value.words
        self._capacity = (page_set.frames.page_bytes // 8 - HEADER_WORDS) // self._row_words
        if self._capacity < 4:
            raise RecordRefused(
                f"a record of {self._row_words * 8} bytes is too long for a page: give larger pages"
            )
        self._leaves: FrameNumbers = np.zeros(0, np.int32)
        #: The least key of each leaf.
        self._lows: Words = np.zeros(0, np.int64)
        self._length = 0

    @classmethod
    def create(cls, page_set: PageSet, schema: pa.Schema, key: str) -> Self:
        """Create a map in a page set, or adopt the map that was recovered with the page set.

        `key` names one column of `schema`; the others are the value. Raises SchemaMismatch if the recovered
        structure has another kind or schema, RecordRefused for unsupported types.
        """
        return cls._create(page_set, schema, [key])

    # -- batches -----------------------------------------------------------------------------------

    def upsert(self, keys: Any, values: Any) -> None:
        """Insert or replace values. If a key occurs twice, the later value counts.

        Fast if keys are close together: each leaf is merged once per batch.
        """
        encoded = self._encoded(keys)
        packed = self._value.pack(values) if self._value.columns else np.zeros((len(encoded), 0), np.int64)
        if len(packed) != len(encoded):
            raise RecordRefused(f"{len(encoded)} keys and {len(packed)} values were given")
        self._put(np.concatenate([encoded[:, None], packed], axis=1))

    def find(self, keys: Any) -> pa.RecordBatch:
        """Return a row per key: `found`, and the columns of the value, null if there is no record."""
        values, found = self._find(self._encoded(keys))
        arrays = [pa.array(found)]
        for column, array in zip(self._value.columns, self._value.arrow_of(values), strict=True):
            if not found.all():
                array = pc.if_else(pa.array(~found), pa.scalar(None, column.type), array)
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, names=["found", *self._value.names])

    def remove(self, keys: Any) -> NDArray[np.bool_]:
        """Remove records; return which keys existed."""
        encoded = self._encoded(keys)
        removed = np.zeros(len(encoded), np.bool_)
        _, first = np.unique(encoded, return_index=True)
        self._pages.settle()
        for begin, end, leaf in self._groups(encoded[first]):
            chosen = first[begin:end]
            rows = self._rows(leaf)
            at = np.searchsorted(rows[:, 0], encoded[chosen])
            there = self._equal(rows, at, encoded[chosen])
            removed[chosen] = there
            if there.any():
                self._replace(leaf, np.delete(rows, at[there], axis=0))
        self._drop_empty()
        return removed

    def remove_below(self, key: Any) -> int:
        """Remove all records with smaller keys, such as old times; return how many."""
        bound = int(self._encoded([key])[0])
        before = self._length
        self._pages.settle()
        for leaf in range(len(self._leaves)):
            rows = self._rows(leaf)
            stay = int(np.searchsorted(rows[:, 0], bound))
            if stay:
                self._replace(leaf, rows[stay:])
            if stay < len(rows):
                break
        self._drop_empty()
        return before - self._length

    def scan(
        self, start: Any = None, stop: Any = None, batch_records: int = state_scan_records
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records with `start` <= key < `stop`, in order. The map must not change meanwhile."""
        names = [*self._key.names, *self._value.names]
        for rows in self._scan(start, stop, batch_records):
            arrays = [self._key_array(rows[:, 0]), *self._value.arrow_of(rows[:, 1:])]
            yield pa.RecordBatch.from_arrays(arrays, names=names)

    # -- the mapping interface ----------------------------------------------------------------------

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, key: Any) -> Any:
        values, found = self._find(self._encoded([key]))
        if not found[0]:
            raise KeyError(key)
        return self._value.unpack_one(values[0])

    def __setitem__(self, key: Any, value: Any) -> None:
        row = np.concatenate([self._encoded([key]), self._value.pack_one(value)])
        self._put(row.reshape(1, -1))

    def __delitem__(self, key: Any) -> None:
        if not self.remove([key])[0]:
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return bool(self._find(self._encoded([key]))[1][0])

    def __iter__(self) -> Iterator[Any]:
        """Yield the keys in order."""
        for rows in self._scan(None, None, state_scan_records):
            yield from self._key_array(rows[:, 0]).to_pylist()

    def first(self) -> Any:
        """Return the least key. Raises KeyError if the map is empty."""
        return self._end_key(0, 0)

    def last(self) -> Any:
        """Return the greatest key. Raises KeyError if the map is empty."""
        return self._end_key(-1, -1)

    def clear(self) -> None:
        """Remove all records and release their pages."""
        self._pages.settle()
        self._pages.clear()
        self._recover()

    # -- inside ------------------------------------------------------------------------------------

    def _recover(self) -> None:
        leaves = np.array([page for page in self._pages.pages if page != SUPER_PAGE], np.int32)
        lows = np.array([self._pages.body(int(page))[0] for page in leaves], np.int64)
        order = np.argsort(lows)
        self._leaves, self._lows = leaves[order], lows[order]
        self._length = sum(int(self._pages.resolve(int(page))[WORD_COUNT]) for page in leaves)

    def _encoded(self, keys: Any) -> Words:
        """Return words that sort like the keys."""
        items = self._key.items_of(keys)[0]
        if items.dtype.kind == "f":
            bits = items.astype(np.float64).view(np.int64)
            return np.where(bits < 0, bits ^ ~_SIGN, bits)
        if items.dtype == np.uint64:
            return items.view(np.int64) ^ _SIGN
        return items.astype(np.int64)

    def _key_array(self, encoded: Words) -> pa.Array:
        column = self._key.columns[0]
        if column.dtype.kind == "f":
            bits = np.where(encoded < 0, encoded ^ ~_SIGN, encoded)
            return column.arrow_of(np.ascontiguousarray(bits).view(np.float64).astype(column.dtype))
        if column.dtype == np.uint64:
            return column.arrow_of(np.ascontiguousarray(encoded ^ _SIGN).view(np.uint64))
        return column.arrow_of(encoded.astype(column.dtype))

    def _end_key(self, leaf: int, row: int) -> Any:
        if not self._length:
            raise KeyError("the map is empty")
        return self._key_array(self._rows(leaf)[row : row + 1 or None, 0].copy())[0].as_py()

    def _rows(self, leaf: int) -> Words:
        words = self._pages.resolve(int(self._leaves[leaf]))
        count = int(words[WORD_COUNT])
        return words[HEADER_WORDS : HEADER_WORDS + count * self._row_words].reshape(count, self._row_words)

    def _groups(self, ascending: Words) -> Iterator[tuple[int, int, int]]:
        """Yield (begin, end, leaf) for each leaf that ascending keys reach, the last leaf first.

        In this order, dividing a leaf does not renumber leaves that are still to come.
        """
        if not len(self._leaves) or not len(ascending):
            return
        leaves = np.maximum(np.searchsorted(self._lows, ascending, side="right") - 1, 0)
        reached, begins = np.unique(leaves, return_index=True)
        ends = np.append(begins[1:], len(ascending))
        for leaf, begin, end in zip(reached[::-1], begins[::-1], ends[::-1], strict=True):
            yield int(begin), int(end), int(leaf)

    @staticmethod
    def _equal(rows: Words, at: Words, encoded: Words) -> NDArray[np.bool_]:
        there = at < len(rows)
        there[there] = rows[at[there], 0] == encoded[there]
        return there

    def _find(self, encoded: Words) -> tuple[Words, NDArray[np.bool_]]:
        values, found = np.zeros((len(encoded), self._value.words), np.int64), np.zeros(len(encoded), np.bool_)
        order = np.argsort(encoded, kind="stable")
        for begin, end, leaf in self._groups(encoded[order]):
            chosen, rows = order[begin:end], self._rows(leaf)
            at = np.searchsorted(rows[:, 0], encoded[chosen])
            there = self._equal(rows, at, encoded[chosen])
            found[chosen] = there
            values[chosen[there]] = rows[at[there], 1:]
        return values, found

    def _put(self, rows: Words) -> None:
        self._pages.settle()
        order = np.argsort(rows[:, 0], kind="stable")
        rows = rows[order]
        last = np.append(rows[1:, 0] != rows[:-1, 0], True) if len(rows) else np.zeros(0, np.bool_)
        rows = rows[last]
        if not len(self._leaves):
            self._insert_leaves(0, rows)
            return
        for begin, end, leaf in self._groups(rows[:, 0]):
            self._merge(leaf, rows[begin:end])

    def _merge(self, leaf: int, added: Words) -> None:
        """Merge rows, sorted and without repeated keys, into a leaf."""
        present = self._rows(leaf)
        at = np.searchsorted(present[:, 0], added[:, 0])
        there = self._equal(present, at, added[:, 0])
        if there.all():
            words = self._pages.writable(int(self._leaves[leaf]))
            body = words[HEADER_WORDS : HEADER_WORDS + len(present) * self._row_words].reshape(present.shape)
            body[at] = added
            return
        merged = np.insert(present, at[~there], added[~there], axis=0)
        merged[np.searchsorted(merged[:, 0], added[there, 0])] = added[there]
        if len(merged) <= self._capacity:
            self._replace(leaf, merged)
            return
        # Allocate new leaves first: if memory runs out, nothing has changed.
        fill = max(1, int(self._capacity * _DIVIDED_FILL))
        pieces = -(-len(merged) // fill)
        self._pages.frames.ensure(pieces)
        bounds = np.linspace(0, len(merged), pieces + 1).astype(np.int64)
        self._insert_leaves(leaf + 1, merged[bounds[1] :])
        self._replace(leaf, merged[: bounds[1]])

    def _insert_leaves(self, at: int, rows: Words) -> None:
        """Insert new leaves with these rows before leaf `at`."""
        fill = max(1, int(self._capacity * _DIVIDED_FILL))
        pieces = -(-len(rows) // fill)
        self._pages.frames.ensure(pieces)
        added = np.array([self._pages.allocate(_LEAF) for _ in range(pieces)], np.int32)
        self._leaves = np.insert(self._leaves, at, added)
        bounds = np.linspace(0, len(rows), pieces + 1).astype(np.int64)
        self._lows = np.insert(self._lows, at, rows[bounds[:-1], 0] if pieces else rows[:0, 0])
        for number in range(pieces):
            self._replace(at + number, rows[bounds[number] : bounds[number + 1]])

    def _replace(self, leaf: int, rows: Words) -> None:
        """Replace a leaf's rows. `rows` may be a view of the leaf."""
        words = self._pages.resolve(int(self._leaves[leaf]))
        self._length += len(rows) - int(words[WORD_COUNT])
        kept = rows.copy()
        words = self._pages.writable(int(self._leaves[leaf]))
        words[WORD_COUNT] = len(kept)
        words[HEADER_WORDS : HEADER_WORDS + kept.size] = kept.reshape(-1)
        if len(kept):
            self._lows[leaf] = kept[0, 0]

    def _drop_empty(self) -> None:
        empty = np.array([len(self._rows(leaf)) == 0 for leaf in range(len(self._leaves))], np.bool_)
        for page in self._leaves[empty]:
            self._pages.release(int(page))
        self._leaves, self._lows = self._leaves[~empty], self._lows[~empty]

    def _scan(self, start: Any, stop: Any, batch_records: int) -> Iterator[Words]:
        begin = None if start is None else int(self._encoded([start])[0])
        end = None if stop is None else int(self._encoded([stop])[0])
        leaf = 0 if begin is None else max(0, int(np.searchsorted(self._lows, begin, side="right")) - 1)
        pieces: list[Words] = []
        for number in range(leaf, len(self._leaves)):
            rows = self._rows(number)
            low = 0 if begin is None else int(np.searchsorted(rows[:, 0], begin))
            high = len(rows) if end is None else int(np.searchsorted(rows[:, 0], end))
            pieces.append(rows[low:high])
            if sum(map(len, pieces)) >= batch_records or high < len(rows):
                yield np.concatenate(pieces)
                pieces = []
            if high < len(rows):
                break
        if sum(map(len, pieces)):
            yield np.concatenate(pieces)
