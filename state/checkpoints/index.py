"""The index of a checkpoint: which pages it consists of, where each is stored, and its checksum. Pure.

Format: magic, length of the head, head as JSON; ids, checksums, positions and generations of all pages; CRC32C.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from peacefs.protocol.errors import CheckpointDamaged
from peacefs.state.pages.frames import Words
from peacefs.state.pages.snapshot import PageSnapshot

_MAGIC: Final = b"PEACEPG1"
_HEAD: Final = struct.Struct("<8sI")
_SUM: Final = struct.Struct("<I")
#: Bytes per page: id, checksum, position and generation number.
_PER_PAGE: Final = 8 + 4 + 4 + 2


class Head(msgspec.Struct, frozen=True):
    """The head of an index. `generations` lists the checkpoints that store pages, with their page counts."""

    unit: str
    sequence: int
    page_bytes: int
    pages: int
    sets: list[tuple[str, int]]
    generations: list[tuple[int, int]]


@dataclass(frozen=True)
class Index:
    """A decoded index: for each page its id, checksum, position in the file, and index into `generations`."""

    head: Head
    ids: Words
    sums: NDArray[np.uint32]
    positions: NDArray[np.uint32]
    generations: NDArray[np.uint16]


def encode(unit: str, snapshot: PageSnapshot, sums: NDArray[np.uint32], stored_counts: dict[int, int]) -> bytes:
    """Encode the index of a snapshot. `sums` are the checksums of the pages that it writes."""
    kept = snapshot.kept
    referred, numbers = np.unique(kept.stored_in, return_inverse=True)
    generations = [(int(each), stored_counts[int(each)]) for each in referred]
    generations.append((snapshot.sequence, len(snapshot.ids)))
    head = msgspec.json.encode(
        Head(
            unit,
            snapshot.sequence,
            snapshot.page_bytes,
            len(kept.ids) + len(snapshot.ids),
            list(snapshot.sets),
            generations,
        )
    )
    own = len(snapshot.ids)
    parts = [
        _HEAD.pack(_MAGIC, len(head)),
        head,
        np.concatenate([kept.ids, snapshot.ids]).astype("<i8").tobytes(),
        np.concatenate([kept.sums, sums]).astype("<u4").tobytes(),
        np.concatenate([kept.stored_at, np.arange(own)]).astype("<u4").tobytes(),
        np.concatenate([numbers, np.full(own, len(referred))]).astype("<u2").tobytes(),
    ]
    data = b"".join(parts)
    return data + _SUM.pack(crc32c(data))


def decode(data: bytes, what: str) -> Index:
    """Decode an index. `what` names it in errors. Raises CheckpointDamaged."""
    if len(data) < _HEAD.size + _SUM.size or data[: len(_MAGIC)] != _MAGIC:
        raise CheckpointDamaged(f"{what} is no index of a checkpoint of pages")
    if crc32c(data[: -_SUM.size]) != _SUM.unpack(data[-_SUM.size :])[0]:
        raise CheckpointDamaged(f"{what} fails its checksum")
    _, length = _HEAD.unpack_from(data)
    try:
        head = msgspec.json.decode(data[_HEAD.size : _HEAD.size + length], type=Head)
    except msgspec.MsgspecError as error:
        raise CheckpointDamaged(f"{what} cannot be read: {error}") from None
    at = _HEAD.size + length
    if len(data) != at + head.pages * _PER_PAGE + _SUM.size:
        raise CheckpointDamaged(f"{what} is not as long as {head.pages} pages make it")
    ids = np.frombuffer(data, "<i8", head.pages, at)
    sums = np.frombuffer(data, "<u4", head.pages, at + 8 * head.pages)
    positions = np.frombuffer(data, "<u4", head.pages, at + 12 * head.pages)
    generations = np.frombuffer(data, "<u2", head.pages, at + 16 * head.pages)
    counts = np.array([count for _, count in head.generations])
    if (
        len(np.unique(ids)) != head.pages
        or (head.pages and (generations.max() >= len(counts) or (positions >= counts[generations]).any()))
        or not set(np.unique(ids >> 32).tolist()) <= {number for _, number in head.sets}
    ):
        raise CheckpointDamaged(f"{what} contradicts itself")
    return Index(head, ids.astype(np.int64), sums.astype(np.uint32), positions.astype(np.uint32), generations)
