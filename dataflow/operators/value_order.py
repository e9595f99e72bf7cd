"""Values as integers in the same order, for types whose extremes Arrow does not find, or finds differently.

Among floating-point numbers NaN is above all others, and -0.0 is 0.0 (decision 61).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .keys import plain_floats

_ALL_BUT_SIGN: Final = np.int64(2**63 - 1)


def has_order(kind: pa.DataType) -> bool:
    """Return True if extremes of a type are kept as their integers in order."""
    return bool(pa.types.is_floating(kind) or pa.types.is_duration(kind))


def order_of(values: pa.Array) -> pa.Array:
    """Return int64 numbers in the same order as the values. Nulls stay."""
    if pa.types.is_duration(values.type):
        return values.view(pa.int64())
    words = plain_floats(values).cast(pa.float64()).view(pa.int64())
    return pa.array(_turned(_words(words)), mask=_gone(words))


def values_of(order: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """Return the values of a type from the result of `order_of`."""
    words = pa.concat_arrays(order.chunks) if order.num_chunks else pa.array([], pa.int64())
    if pa.types.is_duration(kind):
        return words.view(kind)
    return pa.array(_turned(_words(words)).view(np.float64), mask=_gone(words)).cast(kind)


def _words(words: pa.Array) -> NDArray[np.int64]:
    found: NDArray[np.int64] = words.fill_null(0).to_numpy(zero_copy_only=False)
    return found


def _turned(words: NDArray[np.int64]) -> NDArray[Any]:
    """Convert the bits of floating-point numbers to ordered integers, or back."""
    return np.where(words < 0, words ^ _ALL_BUT_SIGN, words)


def _gone(words: pa.Array) -> NDArray[np.bool_] | None:
    return words.is_null().to_numpy(zero_copy_only=False) if words.null_count else None
