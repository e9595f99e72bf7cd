"""Exact sums and means of decimals.

A decimal is an integer of 128 bits and a scale. The integer is split into four words of 32 bits, the highest one
with the sign. Each word is summed in 64 bits, which is enough for 2^31 decimals.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from .exact_sums import Words, check_values

#: Number of words of a decimal, and bits of a word.
DECIMAL_WORDS: Final = 4
_WORD_BITS: Final = 32
#: Digits of a sum.
_DIGITS: Final = 38


def word_of(decimals: pa.Array, place: int) -> pa.Array:
    """Return a word of each decimal, from the lowest one at 0. Nulls stay."""
    gone = decimals.is_null().to_numpy(zero_copy_only=False) if decimals.null_count else None
    end = decimals.offset + len(decimals)
    values = np.frombuffer(decimals.buffers()[1], np.uint32, DECIMAL_WORDS * end)
    words = values.reshape(-1, DECIMAL_WORDS)[decimals.offset :, place]
    signed = words.view(np.int32) if place == DECIMAL_WORDS - 1 else words
    return pa.array(signed.astype(np.int64), mask=gone)


class DecimalSums:
    """Sums of several groups: `words` are the sums of the words, `counts` the number of values."""

    def __init__(self, words: Sequence[Words], counts: Words, scale: int) -> None:
        check_values(counts)
        self._totals = [
            sum(int(word) << (_WORD_BITS * place) for place, word in enumerate(group))
            for group in zip(*words, strict=True)
        ]
        self._counts, self._scale = counts.tolist(), scale

    def sums(self, kind: pa.DataType) -> pa.Array:
        """Return the sums; null for groups without values. Raises OverflowError if one has too many digits."""
        for total in self._totals:
            if abs(total) >= 10**_DIGITS:
                raise OverflowError(
                    f"the result {self._decimal(total)} does not fit into {kind}: cast the column to a lower "
                    "scale or to float64 with select, or use smaller windows"
                )
        return pa.array(self._shown(self._decimal), kind)

    def means(self) -> pa.Array:
        """Return the means, each rounded to the nearest float64; null for groups without values."""
        counts = self._counts
        # Python rounds the quotient of two integers only once.
        means = [
            total * 10 ** max(0, -self._scale) / (count * 10 ** max(0, self._scale)) if count else None
            for total, count in zip(self._totals, counts, strict=True)
        ]
        return pa.array(means, pa.float64())

    def _shown(self, show: Any) -> list[Any]:
        return [show(total) if count else None for total, count in zip(self._totals, self._counts, strict=True)]

    def _decimal(self, total: int) -> Decimal:
        return Context(prec=60).scaleb(Decimal(total), -self._scale)
