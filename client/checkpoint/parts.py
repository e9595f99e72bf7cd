"""Split a checkpoint into chunks, and the files that they make up. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlannedChunk:
    """Bytes of the checkpoint; which one of which part they are."""

    offset: int
    length: int
    part: int
    place: int


def split(length: int, parts_max: int, chunk_bytes: int) -> list[PlannedChunk]:
    """Chunks of `chunk_bytes` but for the last, in order; in each part, of at most `parts_max`, about as many."""
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
    """In the order of the parts; bytes."""
    lengths: list[int] = []
    for chunk in planned:
        if chunk.part == len(lengths):
            lengths.append(0)
        lengths[chunk.part] += chunk.length
    return lengths
