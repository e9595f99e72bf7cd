"""Reads SQLite's write-ahead log without SQLite, to find commits after a damaged frame.

For SQLite, the log ends at the first frame with a wrong checksum. SQLite cannot distinguish a commit that a power
failure cut short from one that was damaged later. But a frame is written only after the commit before it was
synced. So an intact frame after a commit frame, beyond the place where SQLite stops, proves that a durable commit
is lost.

A frame's checksum continues that of the previous frame, and both are in the frames' headers. So a frame after the
damage is verified with the checksum stored in its predecessor. The format is described at
sqlite.org/fileformat2.html#walformat.
"""

from __future__ import annotations

import array
import struct
import sys
from functools import lru_cache
from operator import mul
from pathlib import Path
from typing import BinaryIO, NamedTuple

_LOG_HEAD = struct.Struct(">8I")
_FRAME_HEAD = struct.Struct(">6I")
_MAGIC_LITTLE, _MAGIC_BIG = 0x377F0682, 0x377F0683
_SUMMED_HEAD_BYTES = 8
_WORD = 0xFFFFFFFF

Sums = tuple[int, int]


class LostTail(NamedTuple):
    """The first damaged frame, counted from 1, and a later frame that proves that a commit lies between them."""

    damaged: int
    proof: int


class _Frame(NamedTuple):
    salts: tuple[int, int]
    ends_commit: bool
    sums: Sums


class _Head(NamedTuple):
    order: str
    page_bytes: int
    salts: tuple[int, int]
    sums: Sums


def find_lost_tail(log: Path) -> LostTail | None:
    """Return the proof that commits are lost; None if there is none. Raises OSError.

    A log with a damaged header proves nothing: its frames may all be in the database.
    """
    try:
        with log.open("rb") as file:
            return _scan(file)
    except FileNotFoundError:
        return None


def pages_of(log: Path) -> set[int]:
    """Return the numbers of the pages in a log. SQLite reads these pages from the log. Raises OSError."""
    found: set[int] = set()
    try:
        with log.open("rb") as file:
            head = _read_head(file)
            while head is not None and len(packed := file.read(_FRAME_HEAD.size)) == _FRAME_HEAD.size:
                if _unpack(packed).salts == head.salts:
                    found.add(int(_FRAME_HEAD.unpack(packed)[0]))
                file.seek(head.page_bytes, 1)
    except FileNotFoundError:
        pass
    return found


def _read_head(file: BinaryIO) -> _Head | None:
    """Return the header of a log; None if SQLite would not accept it."""
    head = file.read(_LOG_HEAD.size)
    if len(head) < _LOG_HEAD.size:
        return None
    magic, _version, page_bytes, _sequence, salt_1, salt_2, *sums = _LOG_HEAD.unpack(head)
    order = {_MAGIC_LITTLE: "little", _MAGIC_BIG: "big"}.get(magic)
    if order is None or checksum(head[:24], (0, 0), order) != tuple(sums):
        return None
    return _Head(order, page_bytes, (salt_1, salt_2), (sums[0], sums[1]))


def _scan(file: BinaryIO) -> LostTail | None:
    head = _read_head(file)
    if head is None:
        return None
    order, page_bytes, salts, sums = head
    last, number = _Frame(salts, False, sums), 0
    damaged = 0
    while len(packed := file.read(_FRAME_HEAD.size)) == _FRAME_HEAD.size:
        number += 1
        frame = _unpack(packed)
        if frame.salts != salts:
            # This frame is from an earlier round of the log, or is damaged itself: skip its page.
            file.seek(page_bytes, 1)
            is_sound = False
        else:
            page = file.read(page_bytes)
            data = packed[:_SUMMED_HEAD_BYTES] + page
            is_sound = (
                len(page) == page_bytes and last.salts == salts and checksum(data, last.sums, order) == frame.sums
            )
        if not is_sound and not damaged:
            damaged = number
        elif is_sound and damaged and last.ends_commit:
            return LostTail(damaged, number)
        last = frame
    return None


def _unpack(head: bytes) -> _Frame:
    _page, pages_after_commit, salt_1, salt_2, sum_1, sum_2 = _FRAME_HEAD.unpack(head)
    return _Frame((salt_1, salt_2), pages_after_commit != 0, (sum_1, sum_2))


def checksum(data: bytes, before: Sums, order: str) -> Sums:
    """Return SQLite's checksum of `data`, continued from `before`. The length must be a multiple of 8.

    The checksum is a linear recurrence whose powers are Fibonacci numbers, so two sums of products replace a loop.
    """
    words = array.array("I", data)
    if order != sys.byteorder:
        words.byteswap()
    numbers = _fibonacci(len(words) + 2)
    count = len(words)
    falling = numbers[count::-1]
    first = sum(map(mul, words, falling[1:])) + numbers[count - 1] * before[0] + numbers[count] * before[1]
    second = sum(map(mul, words, falling)) + numbers[count] * before[0] + numbers[count + 1] * before[1]
    return first & _WORD, second & _WORD


@lru_cache(maxsize=4)
def _fibonacci(count: int) -> list[int]:
    numbers = [0, 1]
    while len(numbers) < count:
        numbers.append((numbers[-1] + numbers[-2]) & _WORD)
    return numbers
