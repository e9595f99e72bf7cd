"""Numbers that begin with the epoch, so that neither a crash nor an older backup repeats one; ids of requests.

Layout of a number: 23 bits of epoch above 40 bits of counter, which fits SQLite's signed 64-bit integer.
Chunk ids and chunk versions are both such numbers, drawn from one counter.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

_COUNTER_BITS = 40
EPOCH_MAX = (1 << 23) - 1

ChunkId = int
Version = int
NodeId = str


def first_of_epoch(epoch: int) -> int:
    """The smallest number of an epoch."""
    assert 0 <= epoch <= EPOCH_MAX, f"epoch {epoch} out of range"
    return epoch << _COUNTER_BITS


def epoch_of(number: int) -> int:
    """The epoch in which a number was drawn."""
    return number >> _COUNTER_BITS


@dataclass
class Numbering:
    """Draws the numbers of one epoch, in order. Not thread-safe: owned by the coordinator's loop."""

    epoch: int
    drawn: int = 0

    def next(self) -> int:
        self.drawn += 1
        assert self.drawn < 1 << _COUNTER_BITS
        return first_of_epoch(self.epoch) | self.drawn


def show(number: int) -> str:
    """Format a number for people: `epoch-counter`, in hexadecimal."""
    return f"{epoch_of(number):x}-{number & ((1 << _COUNTER_BITS) - 1):x}"


def read(text: str) -> int | None:
    """The number that `show` shows so; None for any other text."""
    epoch, _, counter = text.partition("-")
    try:
        number = int(epoch, 16) << _COUNTER_BITS | int(counter, 16)
    except ValueError:
        return None
    return number if show(number) == text and epoch_of(number) <= EPOCH_MAX else None


def new_request_id() -> str:
    """Draw the id of one request, however often that is repeated.

    Eighty random bits, after the milliseconds since 1970: requests that come together lie together in the
    coordinator's index of answers, so that a commit changes one page of it and not one for each. Nothing else
    depends on that clock.
    """
    return f"{time.time_ns() // 1_000_000:012x}{os.urandom(10).hex()}"
