"""Maps of fixed-width records: open addressing within a page, and a chain of pages if a bucket overflows.

A page consists of its header, a bitmap of used slots, and the slots: key words, then value words. An empty slot is
all zero, so the bitmap is consulted only if the first word of a key is zero.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from .compiler import helper, kernel
from .frames import writable
from .hashing import bucket_of, hash_of, slot_of
from .places import DIRTY, DONE, GROW, HEADER_WORDS, NO_FRAMES, OVERFLOW, STATUS, WORD_COUNT, WORD_NEXT
from .prefetch import prefetch

# Indexes into the array that describes the records.
KEY_WORDS: Final = 0
RECORD_WORDS: Final = 1
CAPACITY: Final = 2
FILL_MAX: Final = 3
FIRST_SLOT: Final = 4
SHAPE: Final = 5

# Indexes into the array of the map's state.
FIRST: Final = 0
FIRST_BITS: Final = 1
COUNT: Final = 2
COUNT_MAX: Final = 3
FULL_PAGE: Final = 4
STATE: Final = 8

# Modes of `locate`: only find keys; also make their pages writable; also insert missing keys.
FIND: Final = 0
CHANGE: Final = 1
INSERT: Final = 2

# Number of keys whose memory is prefetched before the first of them is compared.
_AHEAD: Final = 32


@helper
def _taken(flat: Any, base: int, slot: int) -> bool:
    return bool((flat[base + HEADER_WORDS + (slot >> 6)] >> (slot & 63)) & 1)


@helper
def _search(flat: Any, base: int, shape: Any, keys: Any, key: int, start: int) -> Any:
    """Return the slot of a key; if the page lacks it, -1 minus the empty slot that ended the search."""
    key_words, record_words, capacity = shape[KEY_WORDS], shape[RECORD_WORDS], shape[CAPACITY]
    first_slot = base + shape[FIRST_SLOT]
    first_word = keys[key]
    slot = start
    for _ in range(capacity):
        at = first_slot + slot * record_words
        word = flat[at]
        if word == 0 and not _taken(flat, base, slot):
            return -1 - slot
        if word == first_word:
            same = True
            for other in range(1, key_words):
                if flat[at + other] != keys[key + other]:
                    same = False
                    break
            if same:
                return int(slot)
        slot += 1
        if slot == capacity:
            slot = 0
    return -1 - capacity


@kernel
def locate(
    words: Any,
    table: Any,
    flags: Any,
    owner: Any,
    free: Any,
    counters: Any,
    directory: Any,
    state: Any,
    shape: Any,
    keys: Any,
    initial: Any,
    mode: int,
    start: int,
    stop: int,
    positions: Any,
    inserted: Any,
) -> int:
    """Write to `positions` where each key's record is in memory, in words; -1 if there is none.

    `keys` holds the words of all keys in sequence. INSERT adds missing keys with the value words `initial`, and
    flags them in `inserted`. INSERT and CHANGE make the pages writable. Returns the first key that was not
    handled; `counters[STATUS]` says why it stopped. Positions are valid until a page is split, released or cloned.
    """
    flat = words.reshape(-1)
    page_words = words.shape[1]
    key_words, record_words, capacity = shape[KEY_WORDS], shape[RECORD_WORDS], shape[CAPACITY]
    first_slot, fill_max = shape[FIRST_SLOT], shape[FILL_MAX]
    first, first_bits = state[FIRST], state[FIRST_BITS]
    ring = directory.shape[0] - 1
    first_pages = np.empty(_AHEAD, np.int64)
    homes = np.empty(_AHEAD, np.int64)
    counters[STATUS] = DONE
    for ahead in range(start, stop, _AHEAD):
        end = min(ahead + _AHEAD, stop)
        for number in range(ahead, end):
            hashed = hash_of(keys, number * key_words, key_words)
            page: Any = np.int64(directory[bucket_of(hashed, first, first_bits) & ring])
            home = slot_of(hashed, capacity)
            first_pages[number - ahead] = page
            homes[number - ahead] = home
            prefetch(flat, table[page] * page_words + first_slot + home * record_words)
        for number in range(ahead, end):
            page = first_pages[number - ahead]
            home = homes[number - ahead]
            key = number * key_words
            slot = -1
            roomy, roomy_slot = -1, 0
            while True:
                base = table[page] * page_words
                slot = _search(flat, base, shape, keys, key, home)
                if slot >= 0:
                    break
                if roomy < 0 and flat[base + WORD_COUNT] < fill_max:
                    roomy, roomy_slot = page, -1 - slot
                following = flat[base + WORD_NEXT]
                if following < 0:
                    break
                page = following
            if slot < 0:
                if mode != INSERT:
                    positions[number] = -1
                    continue
                if state[COUNT] >= state[COUNT_MAX]:
                    counters[STATUS] = GROW
                    return number
                if roomy < 0:
                    state[FULL_PAGE] = page
                    counters[STATUS] = OVERFLOW
                    return number
                page = roomy
            frame = table[page]
            if mode != FIND and flags[frame] != DIRTY:
                frame = writable(words, table, flags, owner, free, counters, page)
                if frame < 0:
                    counters[STATUS] = NO_FRAMES
                    return number
            base = frame * page_words
            if slot < 0:
                slot = roomy_slot
                at = base + first_slot + slot * record_words
                for word in range(key_words):
                    flat[at + word] = keys[key + word]
                for word in range(key_words, record_words):
                    flat[at + word] = initial[word - key_words]
                flat[base + HEADER_WORDS + (slot >> 6)] |= np.int64(1) << (slot & 63)
                flat[base + WORD_COUNT] += 1
                state[COUNT] += 1
                inserted[number] = True
            positions[number] = base + first_slot + slot * record_words
    return stop


@kernel
def remove(
    words: Any,
    table: Any,
    flags: Any,
    owner: Any,
    free: Any,
    counters: Any,
    directory: Any,
    state: Any,
    shape: Any,
    keys: Any,
    start: int,
    stop: int,
    removed: Any,
) -> int:
    """Remove keys; `removed` flags those that existed. Returns the first unhandled key, like `locate`."""
    flat = words.reshape(-1)
    page_words = words.shape[1]
    key_words, capacity = shape[KEY_WORDS], shape[CAPACITY]
    ring = directory.shape[0] - 1
    counters[STATUS] = DONE
    for number in range(start, stop):
        key = number * key_words
        hashed = hash_of(keys, key, key_words)
        home = slot_of(hashed, capacity)
        page = directory[bucket_of(hashed, state[FIRST], state[FIRST_BITS]) & ring]
        slot = -1
        while page >= 0:
            base = table[page] * page_words
            slot = _search(flat, base, shape, keys, key, home)
            if slot >= 0:
                break
            page = flat[base + WORD_NEXT]
        removed[number] = slot >= 0
        if slot < 0:
            continue
        frame = writable(words, table, flags, owner, free, counters, page)
        if frame < 0:
            counters[STATUS] = NO_FRAMES
            return number
        _take_out(flat, frame * page_words, shape, slot)
        state[COUNT] -= 1
    return stop


@helper
def _take_out(flat: Any, base: int, shape: Any, slot: int) -> None:
    """Empty a slot, and move later records up so that every search still finds them."""
    key_words, record_words, capacity = shape[KEY_WORDS], shape[RECORD_WORDS], shape[CAPACITY]
    first_slot = base + shape[FIRST_SLOT]
    hole = slot
    current = slot
    for _ in range(capacity):
        current += 1
        if current == capacity:
            current = 0
        if not _taken(flat, base, current):
            break
        home = slot_of(hash_of(flat, first_slot + current * record_words, key_words), capacity)
        if (current - home) % capacity >= (current - hole) % capacity:
            for word in range(record_words):
                flat[first_slot + hole * record_words + word] = flat[first_slot + current * record_words + word]
            hole = current
    for word in range(record_words):
        flat[first_slot + hole * record_words + word] = 0
    flat[base + HEADER_WORDS + (hole >> 6)] &= ~(np.int64(1) << (hole & 63))
    flat[base + WORD_COUNT] -= 1


@kernel
def collect(words: Any, frame: int, shape: Any, keys: Any, values: Any, at: int) -> int:
    """Copy all records of a page to `keys` and `values`, starting at row `at`; return the row after them."""
    flat = words.reshape(-1)
    base = frame * words.shape[1]
    key_words, record_words = shape[KEY_WORDS], shape[RECORD_WORDS]
    for slot in range(shape[CAPACITY]):
        if _taken(flat, base, slot):
            begin = base + shape[FIRST_SLOT] + slot * record_words
            for word in range(key_words):
                keys[at, word] = flat[begin + word]
            for word in range(key_words, record_words):
                values[at, word - key_words] = flat[begin + word]
            at += 1
    return at
