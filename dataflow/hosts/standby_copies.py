"""Copies of units' states for their standbys: made on one node, kept in the memory of another.

Both nodes use it as a store of page checkpoints. A checkpoint that is submitted is *taken*, to be sent. A received
copy is *kept* until a unit begins with it. It replaces the previous copy, whose pages it may refer to.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from peacefs.protocol.errors import CheckpointDamaged, FileNotFound
from peacefs.state.checkpoints.store import PendingWrite, WriteRequest


class _Taken(msgspec.Struct, frozen=True):
    sequence: int
    referred: list[int]
    index: bytes
    pages: bytes


@dataclass(frozen=True)
class _Kept:
    sequence: int
    index: bytes
    #: The pages of each checkpoint that the index refers to.
    pages: dict[int, bytes]


class _Done:
    """A finished write: the copy is made when it is submitted."""

    expected_start_s = 0.0

    def wait(self, timeout_s: float | None = None) -> None:
        """Return immediately."""

    def cancel(self) -> bool:
        return False


class StandbyCopies:
    """The copies on one node. As thread-safe as a dictionary."""

    def __init__(self) -> None:
        self._taken: dict[tuple[str, int], _Taken] = {}
        self._kept: dict[str, _Kept] = {}

    # -- between nodes -------------------------------------------------------------------------------------

    def take(self, unit: str, sequence: int) -> bytes:
        """Remove a submitted copy, and return its bytes."""
        return msgspec.msgpack.encode(self._taken.pop((unit, sequence)))

    def keep(self, unit: str, data: bytes) -> None:
        """Keep a copy that `take` returned on another node. Raises CheckpointDamaged if its base is missing."""
        copy = msgspec.msgpack.decode(data, type=_Taken)
        before = self._kept.get(unit)
        pages = {} if before is None else before.pages
        missing = [each for each in copy.referred if each not in pages]
        if missing:
            raise CheckpointDamaged(f"copy {copy.sequence} of {unit} lacks pages of copy {missing[0]}")
        kept = {each: pages[each] for each in copy.referred} | {copy.sequence: copy.pages}
        self._kept[unit] = _Kept(copy.sequence, copy.index, kept)

    def drop(self, unit: str) -> None:
        self._kept.pop(unit, None)

    @property
    def kept_bytes(self) -> int:
        return sum(len(pages) for kept in list(self._kept.values()) for pages in list(kept.pages.values()))

    # -- a store of checkpoints ------------------------------------------------------------------------------

    def sequences(self, unit: str) -> list[int]:
        kept = self._kept.get(unit)
        return [] if kept is None else [kept.sequence]

    def submit(self, request: WriteRequest, instead_of: PendingWrite | None = None) -> PendingWrite:
        pages = b"".join(request.runs)
        self._taken[request.unit, request.sequence] = _Taken(
            request.sequence, list(request.referred), request.index, pages
        )
        # From now on the pages may change again.
        request.written(0, len(pages))
        return _Done()

    def index(self, unit: str, sequence: int) -> bytes:
        return self._found(unit, sequence).index

    def read_pages(self, unit: str, sequence: int, stored_in: int, target: memoryview) -> None:
        found = self._found(unit, sequence).pages.get(stored_in, b"")
        if len(found) != len(target):
            raise CheckpointDamaged(f"copy {stored_in} of {unit} is {len(found)} bytes, not {len(target)}")
        target[:] = found

    def remove(self, unit: str, sequence: int) -> None:
        if sequence in self.sequences(unit):
            self.drop(unit)

    def remove_left_over(self, unit: str) -> None:
        """Do nothing: no copy outlives its process."""

    def _found(self, unit: str, sequence: int) -> _Kept:
        kept = self._kept.get(unit)
        if kept is None or kept.sequence != sequence:
            raise FileNotFound(f"there is no copy {sequence} of {unit}")
        return kept
