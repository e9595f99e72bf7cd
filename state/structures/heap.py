"""The texts of a map's records, stored as entries in heap pages of the same page set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from peacefs.protocol.errors import RecordRefused
from peacefs.state.kernels import texts
from peacefs.state.kernels.places import HEADER_WORDS, WORD_A, WORD_B
from peacefs.state.pages.page_set import PageSet

from .arrays import changeable
from .records import Words

HEAP_LAYOUT: Final = 20


@dataclass(frozen=True)
class Texts:
    """Joined texts: text `n` is `data[offsets[n]:offsets[n + 1]]`."""

    data: NDArray[np.uint8]
    offsets: Words

    def __len__(self) -> int:
        return len(self.offsets) - 1


class TextColumn:
    """A column of strings or bytes: converts users' values to texts and back."""

    def __init__(self, field: pa.Field) -> None:
        self.name: str = field.name
        self.type: pa.DataType = field.type
        self._large = pa.large_string() if _is_string(self.type) else pa.large_binary()

    @staticmethod
    def takes(kind: pa.DataType) -> bool:
        """Return whether an Arrow type has no fixed width and is stored as texts."""
        return _is_string(kind) or bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))

    def texts_of(self, given: Any) -> Texts:
        """Convert values to texts. Raises RecordRefused for nulls and other types."""
        if isinstance(given, pa.ChunkedArray):
            given = given.combine_chunks()
        try:
            if not isinstance(given, pa.Array):
                given = pa.array(given, self._large)
            if isinstance(given, pa.DictionaryArray):
                given = given.dictionary_decode()
            if not self.takes(given.type) or _is_string(given.type) != _is_string(self.type):
                raise RecordRefused(f"column {self.name} is of type {self.type} and was given {given.type}")
            array = given.cast(self._large)
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError) as error:
            said = str(error).splitlines()[0]
            raise RecordRefused(f"column {self.name} is of type {self.type}: {said}") from None
        if array.null_count:
            raise RecordRefused(f"column {self.name} was given {array.null_count} nulls, which are not stored")
        _, offsets, data = array.buffers()
        if not len(array):
            return Texts(np.zeros(1, np.uint8), np.zeros(1, np.int64))
        octets = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
        ends = np.frombuffer(offsets, np.int64, len(array) + 1, array.offset * 8)
        return Texts(changeable(octets), changeable(ends))

    def arrow_of(self, found: Texts) -> pa.Array:
        """Return texts as an array of the column's type."""
        buffers = [None, pa.py_buffer(found.offsets), pa.py_buffer(found.data)]
        return pa.Array.from_buffers(self._large, len(found), buffers).cast(self.type)


def _is_string(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


class Heap:
    """Text entries in heap pages of one page set, for `TextMap`. New entries go to the last page.

    Entries are referred to by page and word; a released reference must not be used again. `store` does not wait
    for frames: the caller ensures room first.
    """

    def __init__(self, pages: PageSet, key_words: int) -> None:
        self._pages = pages
        self._key_words = key_words
        self._room = pages.frames.page_bytes // 8 - HEADER_WORDS
        #: The page that receives new entries, 0 if there is none.
        self.last = 0
        #: Pages of which more than half is dead entries.
        self.sparse: set[int] = set()

    def check(self, column: TextColumn, given: Texts) -> None:
        """Raise RecordRefused if a text is too long for a page."""
        longest = int(np.diff(given.offsets).max()) if len(given) else 0
        if longest > self.bytes_max:
            raise RecordRefused(
                f"column {column.name} was given {longest} bytes; a page has room for {self.bytes_max}"
            )

    @property
    def bytes_max(self) -> int:
        return (self._room - 1 - self._key_words) * 8

    def pages_for(self, given: Texts, begin: int, end: int) -> int:
        """Return how many pages the texts from `begin` to `end` may need, with a clone of the last page."""
        words = (end - begin) * (2 + self._key_words) + int(given.offsets[end] - given.offsets[begin]) // 8
        # Each page may end with a gap, because the next entry did not fit.
        return 2 + 2 * words // self._room

    def store(self, column: int, keys: Words, given: Texts, chosen: Words) -> Words:
        """Store the chosen texts and return references. Row `n` of `keys` is the key of text `n`'s record."""
        references = np.empty(len(chosen), np.int64)
        at = 0
        while at < len(chosen):
            if not self.last:
                self.last = self._pages.allocate(HEAP_LAYOUT)
                self._pages.writable(self.last)[WORD_A] = HEADER_WORDS
            page = self._pages.writable(self.last)
            came = texts.append_entries(
                page, self.last, column, keys, given.data, given.offsets, chosen, at, references
            )
            if came < len(chosen):
                self.last = 0
            at = came
        return references

    def fetch(self, references: Words) -> Texts:
        """Return the referenced texts; reference 0 is an empty text."""
        offsets = np.zeros(len(references) + 1, np.int64)
        words = self._pages.frames.words
        flat, page_words = words.reshape(-1), words.shape[1]
        texts.lengths_of(flat, self._pages.table, page_words, references, offsets)
        data = np.empty(max(1, int(offsets[-1])), np.uint8)
        octets = flat.view(np.uint8)
        texts.copy_texts(octets, self._pages.table, page_words, self._key_words, references, offsets, data)
        return Texts(data, offsets)

    def free(self, references: Words) -> None:
        """Mark entries dead. Release empty pages, and add pages that should be compacted to `sparse`."""
        references = references[references != 0]
        frames = self._pages.frames
        at = 0
        while at < len(references):
            came = texts.kill_entries(
                frames.words,
                self._pages.table,
                frames.flags,
                frames.owner,
                frames.free,
                frames.counters,
                self._key_words,
                references[at:],
            )
            at += came
            if at < len(references):
                frames.make_room()
        for page in np.unique(references >> texts.REFERENCE_SHIFT):
            self._look_at(int(page))

    def _look_at(self, number: int) -> None:
        page = self._pages.resolve(number)
        used, dead = int(page[WORD_A]) - HEADER_WORDS, int(page[WORD_B])
        if dead == used:
            self.release(number)
        elif number != self.last and dead * 2 > self._room:
            self.sparse.add(number)

    def living(self, number: int) -> tuple[Words, Words, Words]:
        """Return references, columns and keys of a page's living entries."""
        most = self._room // (1 + self._key_words) + 1
        references, columns = np.empty(most, np.int64), np.empty(most, np.int64)
        keys = np.empty((most, self._key_words), np.int64)
        page = self._pages.resolve(number)
        count = texts.living_entries(page, number, self._key_words, references, columns, keys)
        return references[:count], columns[:count], keys[:count]

    def release(self, number: int) -> None:
        self._pages.release(number)
        self.sparse.discard(number)
        if number == self.last:
            self.last = 0
