"""The chunks without a file that are certain to be garbage. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from peacefs.protocol.ids import ChunkId


class Garbage(NamedTuple):
    """Chunks below `floor` that no file refers to are garbage, but for those that somebody keeps.

    The floor is a committed one. What is below it and not kept now stays garbage: it can neither be kept nor
    published any more. One that is kept is to be looked at again when there is another `round`.
    """

    floor: ChunkId = 0
    is_kept: Callable[[ChunkId], bool] = lambda chunk: False
    round: int = 0
