"""Hashes of the keys of rows. They are the same in every process, so that all agree where a key belongs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from peacefs.dataflow.model.operator import Rows
from peacefs.dataflow.model.stream_type import StreamType
from peacefs.protocol.errors import InvalidQuery
from peacefs.state.kernels.texts import hash_texts
from peacefs.state.structures.arrays import changeable

Hashes: TypeAlias = NDArray[np.uint64]

_SECRET = np.zeros(2, np.int64)
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLY_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLY_2 = np.uint64(0x94D049BB133111EB)
# The hash of null, which is a key like any other.
_NULL = np.uint64(0xA24BAED4963EE407)


def check_hashed(keys: Sequence[str], stream: StreamType, purpose: str) -> None:
    """Raise InvalidQuery unless the stream has `keys`, and all of them have types that can be hashed."""
    stream.require(keys, purpose)
    for key in keys:
        kind = stream.schema.field(key).type
        if not (_is_number(kind) or _is_text(kind)):
            raise InvalidQuery(f"{purpose} has key {key!r} of type {kind}: use whole numbers, times, or strings")


def hash_keys(rows: Rows, keys: Sequence[str]) -> Hashes:
    """Return a 64-bit hash for each row."""
    found: Hashes = np.zeros(rows.num_rows, np.uint64)
    for key in keys:
        found = _mixed(found ^ _hashed(rows.column(key)))
    return found


def parts_of(rows: Rows, keys: Sequence[str], parts: int) -> NDArray[np.int16]:
    """Return which part each row belongs to. The parts have equal shares of the hashes."""
    high = hash_keys(rows, keys) >> np.uint64(32)
    return ((high * np.uint64(parts)) >> np.uint64(32)).astype(np.int16)


def _hashed(column: pa.Array) -> Hashes:
    nulls = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    if _is_number(column.type):
        words = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).view(np.uint64)
    else:
        texts = column.cast(pa.large_binary()).fill_null(b"")
        _, offsets, data = texts.buffers()
        ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
        octets = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
        hashes = np.empty((len(texts), 2), np.int64)
        hash_texts(changeable(octets), changeable(ends), _SECRET, hashes)
        words = hashes[:, 0].copy().view(np.uint64)
    return words if nulls is None else np.where(nulls, _NULL, words)


def _mixed(words: Hashes) -> Hashes:
    """Mix the bits of each word (splitmix64)."""
    spread = words + _STEP
    spread = (spread ^ (spread >> np.uint64(30))) * _MULTIPLY_1
    spread = (spread ^ (spread >> np.uint64(27))) * _MULTIPLY_2
    return spread ^ (spread >> np.uint64(31))


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        (pa.types.is_integer(kind) and not pa.types.is_uint64(kind))
        or pa.types.is_boolean(kind)
        or pa.types.is_timestamp(kind)
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )
