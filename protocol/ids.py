"""Chunk ids and versions, which contain the epoch so that they stay unique after a crash or restore; request ids.

A number has 23 bits of epoch above 40 bits of counter, which fits SQLite's signed 64-bit integer.
Chunk ids and chunk versions are drawn from the same counter.
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
    assert 0 <= epoch <= EPOCH_MAX, f"epoch {epoch} out of range"
    return epoch << _COUNTER_BITS


def epoch_of(number: int) -> int:
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
    """Parse a number in the format of `show`; None for any other text."""
    epoch, _, counter = text.partition("-")
    try:
        number = int(epoch, 16) << _COUNTER_BITS | int(counter, 16)
    except ValueError:
        return None
    return number if show(number) == text and epoch_of(number) <= EPOCH_MAX else None


def new_request_id() -> str:
    """Return a new request id; retries of the request keep it.

    The id is the time in milliseconds since 1970, then 80 random bits. So requests of the same time are adjacent
    in the coordinator's index of answers, and a commit changes few pages of it. Nothing else depends on the time.
    """
    return f"{time.time_ns() // 1_000_000:012x}{os.urandom(10).hex()}"
