"""Copies of units' states for their standbys: made on one node, kept in the memory of another.

A store of checkpoints of pages, on both. What a checkpointer submits is *taken*, to be sent; what was received is
*kept* in the place of the copy before, whose pages it may refer to, until a unit begins with it.
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
    """A copy is made when it is submitted."""

    expected_start_s = 0.0

    def wait(self, timeout_s: float | None = None) -> None:
        """It is there."""

    def cancel(self) -> bool:
        return False


class StandbyCopies:
    """Thread-safe as dictionaries are."""

    def __init__(self) -> None:
        self._taken: dict[tuple[str, int], _Taken] = {}
        self._kept: dict[str, _Kept] = {}

    # -- between nodes -------------------------------------------------------------------------------------

    def take(self, unit: str, sequence: int) -> bytes:
        """Return a copy that was submitted, and forget it."""
        return msgspec.msgpack.encode(self._taken.pop((unit, sequence)))

    def keep(self, unit: str, data: bytes) -> None:
        """Keep what `take` returned elsewhere. Raises CheckpointDamaged without the copy that it is based on."""
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
        # Pages may change again from now on.
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
        """Nothing outlives its process here."""

    def _found(self, unit: str, sequence: int) -> _Kept:
        kept = self._kept.get(unit)
        if kept is None or kept.sequence != sequence:
            raise FileNotFound(f"there is no copy {sequence} of {unit}")
        return kept
