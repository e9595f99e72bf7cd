"""Places of keys on the ring, computed with Arrow: the same on every node and in every run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from peacefs.protocol.errors import InvalidQuery
from peacefs.state.kernels.texts import hash_texts

from .tokens import Hashes, spread

_SECRET = np.zeros(2, np.int64)


def key_places(columns: Sequence[pa.Array]) -> Hashes:
    """Return the place of each row of key columns. Raises InvalidQuery if a type cannot be hashed."""
    places = spread(_words(columns[0]))
    for column in columns[1:]:
        places = spread(places ^ spread(_words(column)))
    return places


def _words(column: pa.Array) -> Hashes:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _words(column.dictionary_decode())
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind):
        return _text_words(column.cast(pa.large_binary()))
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_temporal(kind):
        whole = (
            column if pa.types.is_integer(kind) else column.cast(pa.int8() if kind == pa.bool_() else pa.int64())
        )
        filled = pc.fill_null(whole, 0) if whole.null_count else whole
        return np.asarray(filled).astype(np.int64, copy=False)
    raise InvalidQuery(f"a key of type {kind} has no place on a ring: use a string, an integer or a time")


def _text_words(column: pa.Array) -> Hashes:
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    texts = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    hashes = np.empty((len(column), 2), np.int64)
    hash_texts(texts, ends, _SECRET, hashes)
    return np.ascontiguousarray(hashes[:, 0])
