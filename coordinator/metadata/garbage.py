"""The chunks without a file that are certain to be garbage. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from peacefs.protocol.ids import ChunkId


class Garbage(NamedTuple):
    """Chunks below `floor` that no file refers to and nobody keeps are garbage.

    The floor is committed. A chunk that is garbage stays garbage: it can be neither kept nor published again. A
    kept chunk must be checked again when `round` has changed.
    """

    floor: ChunkId = 0
    is_kept: Callable[[ChunkId], bool] = lambda chunk: False
    round: int = 0
