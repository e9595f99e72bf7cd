"""Byte strings: hashed to two words by SipHash-1-3, and stored as entries of heap pages.

An entry consists of a word with its length and column, the words of its record's key, and the bytes, padded to a
word. A dead entry has the sign bit set. A reference holds the page's sequence number in its upper half, and the
index of the entry's first word within the page in its lower half.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from .compiler import helper, kernel
from .frames import writable
from .places import DIRTY, HEADER_WORDS, WORD_A, WORD_B

#: The position of the column's number in an entry's first word.
COLUMN_SHIFT: Final = 40
LENGTH_MASK: Final = 2**32 - 1
REFERENCE_SHIFT: Final = 32

_V0 = np.uint64(0x736F6D6570736575)
_V1 = np.uint64(0x646F72616E646F6D)
_V2 = np.uint64(0x6C7967656E657261)
_V3 = np.uint64(0x7465646279746573)
_EE = np.uint64(0xEE)
_DD = np.uint64(0xDD)


@helper
def _left(word: Any, bits: Any) -> Any:
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))


@helper
def _round(v0: Any, v1: Any, v2: Any, v3: Any) -> Any:
    v0 += v1
    v1 = _left(v1, 13) ^ v0
    v0 = _left(v0, 32)
    v2 += v3
    v3 = _left(v3, 16) ^ v2
    v0 += v3
    v3 = _left(v3, 21) ^ v0
    v2 += v1
    v1 = _left(v1, 17) ^ v2
    v2 = _left(v2, 32)
    return v0, v1, v2, v3


@helper
def _word(data: Any, begin: int, end: int) -> Any:
    """Return up to eight bytes as a word."""
    found = np.uint64(0)
    for at in range(begin, end):
        found |= np.uint64(data[at]) << np.uint64((at - begin) * 8)
    return found


@kernel
def hash_texts(data: Any, offsets: Any, secret: Any, hashes: Any) -> None:
    """Write two words of hash per text. Without the secret, collisions cannot be found."""
    key0, key1 = np.uint64(secret[0]), np.uint64(secret[1])
    for number in range(hashes.shape[0]):
        begin, end = offsets[number], offsets[number + 1]
        v0, v1, v2, v3 = key0 ^ _V0, key1 ^ _V1 ^ _EE, key0 ^ _V2, key1 ^ _V3
        at = begin
        while at + 8 <= end:
            word = _word(data, at, at + 8)
            v3 ^= word
            v0, v1, v2, v3 = _round(v0, v1, v2, v3)
            v0 ^= word
            at += 8
        word = _word(data, at, end) | (np.uint64(end - begin) << np.uint64(56))
        v3 ^= word
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0 ^= word
        v2 ^= _EE
        for _ in range(3):
            v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        hashes[number, 0] = np.int64(v0 ^ v1 ^ v2 ^ v3)
        v1 ^= _DD
        for _ in range(3):
            v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        hashes[number, 1] = np.int64(v0 ^ v1 ^ v2 ^ v3)


@kernel
def append_entries(
    page: Any, number: int, column: int, keys: Any, data: Any, offsets: Any, chosen: Any, at: int, references: Any
) -> int:
    """Append texts as entries to a page until it is full, from `chosen[at]`; return the next index."""
    octets = page.view(np.uint8)
    key_words = keys.shape[1]
    while at < chosen.shape[0]:
        text = chosen[at]
        length = offsets[text + 1] - offsets[text]
        begin = page[WORD_A]
        end = begin + 1 + key_words + (length + 7) // 8
        if end > page.shape[0]:
            break
        page[begin] = length | (column << COLUMN_SHIFT)
        for word in range(key_words):
            page[begin + 1 + word] = keys[text, word]
        page[end - 1] = page[end - 1] if length == 0 else 0
        first = (begin + 1 + key_words) * 8
        for octet in range(length):
            octets[first + octet] = data[offsets[text] + octet]
        page[WORD_A] = end
        references[at] = (number << REFERENCE_SHIFT) | begin
        at += 1
    return at


@kernel
def lengths_of(flat: Any, table: Any, page_words: int, references: Any, offsets: Any) -> None:
    """Write the end of each text to `offsets`, as if the texts were joined. A reference of 0 is an empty text."""
    offsets[0] = 0
    for number in range(references.shape[0]):
        reference = references[number]
        length = 0
        if reference != 0:
            at = table[reference >> REFERENCE_SHIFT] * page_words + (reference & LENGTH_MASK)
            length = flat[at] & LENGTH_MASK
        offsets[number + 1] = offsets[number] + length


@kernel
def copy_texts(
    octets: Any, table: Any, page_words: int, key_words: int, references: Any, offsets: Any, data: Any
) -> None:
    """Copy the referenced texts to `data`, each to its offset."""
    for number in range(references.shape[0]):
        reference = references[number]
        if reference != 0:
            at = table[reference >> REFERENCE_SHIFT] * page_words + (reference & LENGTH_MASK)
            first = (at + 1 + key_words) * 8
            for octet in range(offsets[number + 1] - offsets[number]):
                data[offsets[number] + octet] = octets[first + octet]


@kernel
def kill_entries(
    words: Any,
    table: Any,
    flags: Any,
    owner: Any,
    free: Any,
    counters: Any,
    key_words: int,
    references: Any,
) -> int:
    """Mark entries dead, and count their words per page. Returns how many were marked until frames ran out."""
    for number in range(references.shape[0]):
        reference = references[number]
        if reference == 0:
            continue
        page = reference >> REFERENCE_SHIFT
        frame = np.int64(table[page])
        if flags[frame] != DIRTY:
            frame = np.int64(writable(words, table, flags, owner, free, counters, page))
            if frame < 0:
                return number
        at = reference & LENGTH_MASK
        length = words[frame, at] & LENGTH_MASK
        words[frame, at] |= np.int64(-(2**63))
        words[frame, WORD_B] += 1 + key_words + (length + 7) // 8
    return int(references.shape[0])


@kernel
def living_entries(page: Any, number: int, key_words: int, references: Any, columns: Any, keys: Any) -> int:
    """List a page's living entries with their columns and records' keys; return how many there are."""
    found = 0
    at = HEADER_WORDS
    while at < page[WORD_A]:
        length = page[at] & LENGTH_MASK
        if page[at] >= 0:
            references[found] = (number << REFERENCE_SHIFT) | at
            columns[found] = page[at] >> COLUMN_SHIFT
            for word in range(key_words):
                keys[found, word] = page[at + 1 + word]
            found += 1
        at += 1 + key_words + (length + 7) // 8
    return found
