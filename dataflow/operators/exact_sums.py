"""Exact sums and means of integers of any width.

A 64-bit number is split into two parts: its low 32 bits, and the higher bits with the sign. Each part is summed
separately in 64 bits, which is enough for 2^31 numbers.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

#: Maximum number of integers that one sum or mean adds up, per key and window.
dataflow_values_per_sum_max: Final = 2**31 - 1


Words: TypeAlias = NDArray[np.int64]

_LOW_BITS: Final = 32
_LOW: Final = 2**_LOW_BITS - 1
#: Integers of up to this many bits are exact as float64.
_FLOAT_BITS: Final = 53


def low_part(numbers: pa.Array) -> pa.Array:
    """Return the low 32 bits of int64 or uint64 numbers. Nulls stay."""
    words, gone = _words(numbers)
    return pa.array((words & words.dtype.type(_LOW)).astype(np.int64), mask=gone)


def high_part(numbers: pa.Array) -> pa.Array:
    """Return the bits above the low 32 of int64 or uint64 numbers. Nulls stay."""
    words, gone = _words(numbers)
    return pa.array((words >> words.dtype.type(_LOW_BITS)).astype(np.int64), mask=gone)


def check_values(counts: Words) -> None:
    """Raise OverflowError if a sum has more values than its words can hold."""
    most = int(counts.max(initial=0))
    if most > dataflow_values_per_sum_max:
        raise OverflowError(
            f"{most:,} values of a key are in a window, and {dataflow_values_per_sum_max:,} can be added up: "
            "use smaller windows"
        )


class ExactSums:
    """Sums of several groups: `low` and `high` are the sums of the parts, `counts` the number of values."""

    def __init__(self, low: Words, high: Words, counts: Words) -> None:
        check_values(counts)
        self._counts = counts
        self._high = high + (low >> _LOW_BITS)
        self._low = low & _LOW

    def sums(self, kind: pa.DataType) -> pa.Array:
        """Return the sums as int64 or uint64; null for groups without values. Raises OverflowError."""
        first, last = (0, _LOW) if pa.types.is_unsigned_integer(kind) else (-(2**31), 2**31 - 1)
        wrong = np.flatnonzero((self._high < first) | (self._high > last))
        if len(wrong):
            raise OverflowError(
                f"the result {self._total(int(wrong[0]))} does not fit into {kind}: cast the column to float64 "
                "with select, or use smaller windows"
            )
        words = (self._high << _LOW_BITS) | self._low
        return pa.array(words.view(kind.to_pandas_dtype()), kind, mask=self._counts == 0)

    def means(self) -> pa.Array:
        """Return the means, each rounded to the nearest float64; null for groups without values."""
        counts = np.maximum(self._counts, 1)
        small = np.abs(self._high) < 2 ** (_FLOAT_BITS - _LOW_BITS - 1)
        means = ((self._high << _LOW_BITS) + self._low) / counts
        for at in np.flatnonzero(~small).tolist():
            # Python rounds the quotient of two integers only once.
            means[at] = self._total(at) / int(counts[at])
        return pa.array(means, mask=self._counts == 0)

    def _total(self, at: int) -> int:
        return (int(self._high[at]) << _LOW_BITS) + int(self._low[at])


def _words(numbers: pa.Array) -> tuple[NDArray[np.integer], NDArray[np.bool_] | None]:
    gone = numbers.is_null().to_numpy(zero_copy_only=False) if numbers.null_count else None
    return numbers.fill_null(0).to_numpy(zero_copy_only=False), gone
