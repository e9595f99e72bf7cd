"""States of units on one node: made empty, or loaded from their checkpoints."""

from __future__ import annotations

from peacefs.dataflow.core.messages import CheckpointId, sequence_of
from peacefs.dataflow.core.node import Bounds
from peacefs.dataflow.unit_state.paged_state import PagedState
from peacefs.protocol import limits
from peacefs.state.checkpoints.checkpointer import Checkpointer
from peacefs.state.pages.manager import PageManager

from .checkpoint_store import UnitCheckpoints, name_of
from .standby_copies import StandbyCopies


class UnitStates:
    def __init__(self, checkpoints: UnitCheckpoints, bounds: Bounds, *, standbys: bool = False) -> None:
        """With `standbys` states are copied to the memory of other nodes, and not written."""
        self._checkpoints = checkpoints
        self._bounds = bounds
        self._copies = StandbyCopies() if standbys else None

    def new(self, unit: str) -> PagedState:
        """Return the state of a unit that begins without a checkpoint."""
        return PagedState(*self._open(unit))

    def load(self, unit: str, checkpoint: CheckpointId) -> PagedState:
        """Read a checkpoint, on any thread. Raises CheckpointDamaged, FileNotFound, and what the store raises."""
        pages, checkpointer = self._open(unit)
        checkpointer.load(sequence_of(checkpoint))
        return PagedState(pages, checkpointer)

    @property
    def copied_bytes(self) -> int:
        """Bytes of copies that are kept here for units of other nodes."""
        return 0 if self._copies is None else self._copies.kept_bytes

    def take_copy(self, unit: str, sequence: int) -> bytes:
        """Return the bytes of a capture that was written here, for the unit's standby."""
        assert self._copies is not None
        return self._copies.take(name_of(unit), sequence)

    def keep_copy(self, unit: str, data: bytes) -> None:
        assert self._copies is not None
        self._copies.keep(name_of(unit), data)

    def drop_copy(self, unit: str) -> None:
        if self._copies is not None:
            self._copies.drop(name_of(unit))

    def load_copy(self, unit: str) -> PagedState:
        """Load the copy that is kept here, on any thread."""
        assert self._copies is not None
        pages, checkpointer = self._open(unit)
        (sequence,) = self._copies.sequences(name_of(unit))
        checkpointer.load(sequence)
        return PagedState(pages, checkpointer)

    def _open(self, unit: str) -> tuple[PageManager, Checkpointer]:
        pages = PageManager(page_bytes=self._bounds.page_bytes, memory_bytes_max=self._bounds.state_bytes_max)
        if self._copies is None:
            return pages, Checkpointer(pages, self._checkpoints.pages(), name_of(unit), keep=None)
        generations = limits.dataflow_copy_generations_max
        return pages, Checkpointer(pages, self._copies, name_of(unit), keep=None, generations_max=generations)
