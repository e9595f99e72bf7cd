"""Splits a checkpoint into chunks and into the files that contain them. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlannedChunk:
    """Bytes of the checkpoint; `part` is the number of their file, `place` the number of the chunk in it."""

    offset: int
    length: int
    part: int
    place: int


def split(length: int, parts_max: int, chunk_bytes: int) -> list[PlannedChunk]:
    """Split into chunks of `chunk_bytes` (the last may be shorter), spread evenly over up to `parts_max` parts."""
    count = -(-length // chunk_bytes)
    parts = min(parts_max, count)
    planned = []
    for part in range(parts):
        first, end = part * count // parts, (part + 1) * count // parts
        for number in range(first, end):
            offset = number * chunk_bytes
            planned.append(PlannedChunk(offset, min(chunk_bytes, length - offset), part, number - first))
    return planned


def part_lengths(planned: list[PlannedChunk]) -> list[int]:
    """Return the length of each part in bytes."""
    lengths: list[int] = []
    for chunk in planned:
        if chunk.part == len(lengths):
            lengths.append(0)
        lengths[chunk.part] += chunk.length
    return lengths
