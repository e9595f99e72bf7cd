"""Read and change columns of located records. A position is a word's index in memory, -1 for no record.

`memory` is all memory as items of the column's type. A record's item is `position * per_word + offset`.
"""

from __future__ import annotations

from typing import Any

from .compiler import kernel


@kernel
def gather(flat: Any, positions: Any, offset: int, values: Any, found: Any) -> None:
    """Copy the words at `offset` after each position into a row; `found` says where there is a record."""
    for number in range(positions.shape[0]):
        position = positions[number]
        found[number] = position >= 0
        if position >= 0:
            for word in range(values.shape[1]):
                values[number, word] = flat[position + offset + word]


@kernel
def scatter(flat: Any, positions: Any, offset: int, values: Any, start: int, stop: int) -> None:
    """Copy rows to the words at `offset` after their positions."""
    for number in range(start, stop):
        position = positions[number]
        if position >= 0:
            for word in range(values.shape[1]):
                flat[position + offset + word] = values[number, word]


@kernel
def add(memory: Any, positions: Any, per_word: int, offset: int, deltas: Any, start: int, stop: int) -> None:
    for number in range(start, stop):
        position = positions[number]
        if position >= 0:
            memory[position * per_word + offset] += deltas[number]


@kernel
def add_one(memory: Any, positions: Any, per_word: int, offset: int, delta: Any, start: int, stop: int) -> None:
    """Add the same number to each record."""
    for number in range(start, stop):
        position = positions[number]
        if position >= 0:
            memory[position * per_word + offset] += delta


@kernel
def minimum(memory: Any, positions: Any, per_word: int, offset: int, values: Any, start: int, stop: int) -> None:
    for number in range(start, stop):
        position = positions[number]
        if position >= 0:
            at = position * per_word + offset
            if values[number] < memory[at]:
                memory[at] = values[number]


@kernel
def maximum(memory: Any, positions: Any, per_word: int, offset: int, values: Any, start: int, stop: int) -> None:
    for number in range(start, stop):
        position = positions[number]
        if position >= 0:
            at = position * per_word + offset
            if values[number] > memory[at]:
                memory[at] = values[number]


@kernel
def put(memory: Any, positions: Any, per_word: int, offset: int, values: Any, start: int, stop: int) -> None:
    for number in range(start, stop):
        position = positions[number]
        if position >= 0:
            memory[position * per_word + offset] = values[number]
