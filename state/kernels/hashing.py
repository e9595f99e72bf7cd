"""Hashes of keys, and their buckets: linear hashing with exponentially distributed buckets.

In plain linear hashing (Litwin 1980) buckets that were not yet split are twice as full as the others, so pages are
45 % full on average. Spiral storage (Martin 1979) also splits one bucket at a time, in the same order, but gives
the bucket that is split next the most records: pages are 60 % full at any size. The buckets are numbered `first`
to `2 * first - 1`. Growing replaces bucket `first` by buckets `2 * first` and `2 * first + 1`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiler import helper

# Coefficients that approximate 2**r - 1 for r in [0, 1), in units of 2**-32. Their sum is 2**32: exact at r = 1.
_C1 = np.uint64(2_989_554_919)
_C2 = np.uint64(964_177_113)
_C3 = np.uint64(2**32 - 2_989_554_919 - 964_177_113)
_ONE = np.uint64(2**32)
_HALF = np.uint64(32)
_LOW = np.uint64(2**32 - 1)
_MULTIPLY_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLY_2 = np.uint64(0x94D049BB133111EB)
_STEP = np.uint64(0x9E3779B97F4A7C15)
_SHIFT_1 = np.uint64(30)
_SHIFT_2 = np.uint64(27)
_SHIFT_3 = np.uint64(31)


@helper
def mix(word: Any) -> Any:
    """Spread the bits of a word over all its bits (splitmix64)."""
    spread = np.uint64(word) + _STEP
    spread = (spread ^ (spread >> _SHIFT_1)) * _MULTIPLY_1
    spread = (spread ^ (spread >> _SHIFT_2)) * _MULTIPLY_2
    return spread ^ (spread >> _SHIFT_3)


@helper
def hash_of(flat: Any, at: int, key_words: int) -> Any:
    """Hash the key that begins at index `at`."""
    found = mix(flat[at])
    for word in range(1, key_words):
        found = mix(found ^ np.uint64(flat[at + word]))
    return found


@helper
def bucket_of(hashed: Any, first: int, first_bits: int) -> Any:
    """Return the bucket of a hash, from `first` to `2 * first - 1`; `first_bits` is log2 of `first`."""
    part = hashed >> _HALF
    inner = _C2 + ((part * _C3) >> _HALF)
    inner = _C1 + ((part * inner) >> _HALF)
    spread = _ONE + ((part * inner) >> _HALF)
    bucket = np.int64(spread >> np.uint64(32 - first_bits))
    if bucket < first:
        bucket = np.int64(spread >> np.uint64(31 - first_bits))
    return bucket


@helper
def slot_of(hashed: Any, capacity: int) -> Any:
    """Return the slot where the search begins, from the half of the hash that does not choose the bucket."""
    return np.int64(((hashed & _LOW) * np.uint64(capacity)) >> _HALF)
