"""States of units on one node: made empty, or loaded from their checkpoints."""

from __future__ import annotations

from peacefs.dataflow.core.messages import CheckpointId, sequence_of
from peacefs.dataflow.core.node import Bounds
from peacefs.dataflow.unit_state.paged_state import PagedState
from peacefs.state.checkpoints.checkpointer import Checkpointer
from peacefs.state.pages.manager import PageManager

from .checkpoint_store import UnitCheckpoints, name_of


class UnitStates:
    def __init__(self, checkpoints: UnitCheckpoints, bounds: Bounds) -> None:
        self._checkpoints = checkpoints
        self._bounds = bounds

    def new(self, unit: str) -> PagedState:
        """Return the state of a unit that begins without a checkpoint."""
        return PagedState(*self._open(unit))

    def load(self, unit: str, checkpoint: CheckpointId) -> PagedState:
        """Read a checkpoint, on any thread. Raises CheckpointDamaged, FileNotFound, and what the store raises."""
        pages, checkpointer = self._open(unit)
        checkpointer.load(sequence_of(checkpoint))
        return PagedState(pages, checkpointer)

    def _open(self, unit: str) -> tuple[PageManager, Checkpointer]:
        pages = PageManager(page_bytes=self._bounds.page_bytes, memory_bytes_max=self._bounds.state_bytes_max)
        return pages, Checkpointer(pages, self._checkpoints.pages(), name_of(unit), keep=None)
