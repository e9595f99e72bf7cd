"""States of units on one node: created empty, or loaded from their checkpoints or logs."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from peacefs.dataflow.core.bounds import Bounds
from peacefs.dataflow.core.messages import CheckpointId, sequence_of
from peacefs.dataflow.core.query_recovery import QueryRecovery
from peacefs.dataflow.logs.unit_log import UnitLogWriter, read_unit_log
from peacefs.dataflow.techniques.window_units import windows_of
from peacefs.dataflow.unit_state.interface import UnitState
from peacefs.dataflow.unit_state.paged_state import PagedState
from peacefs.dataflow.window_checkpoints.windowed_state import WindowedState
from peacefs.protocol import limits
from peacefs.protocol.errors import CheckpointDamaged, DiskFault, FileNotFound, LogDamaged
from peacefs.state.checkpoints.checkpointer import Checkpointer
from peacefs.state.pages.manager import PageManager

from .checkpoint_store import UnitCheckpoints, name_of
from .standby_copies import StandbyCopies

# Maximum number of older copies that a copy may be based on. After that their pages are sent again.
dataflow_copy_generations_max: Final = 64


class UnitStates:
    def __init__(
        self,
        checkpoints: UnitCheckpoints,
        bounds: Bounds,
        recovery: QueryRecovery | None = None,
        *,
        clock: Callable[[], float] = time.time,
        threads: Executor | None = None,
        in_background: bool = True,
    ) -> None:
        """`recovery`: that of the query's units; None means that all units write checkpoints.

        `threads`: where logs are written; without it, the thread that commits writes. `in_background`: other
        threads write checkpoints, and reserve memory in advance.
        """
        self._checkpoints, self._bounds = checkpoints, bounds
        self._recovery = recovery
        self._clock, self._threads, self._in_background = clock, threads, in_background
        # If units have standbys, states are copied to the memory of other nodes, and not written.
        self._copies = StandbyCopies()

    def new(self, unit: str) -> UnitState:
        """Return the state of a unit that begins without a checkpoint."""
        return PagedState(*self._open(unit))

    def load(self, unit: str, checkpoint: CheckpointId) -> UnitState:
        """Read a checkpoint, on any thread. Raises CheckpointDamaged, FileNotFound, and errors of the store."""
        if self._recovery is not None and self._recovery.technique_of(unit).windows is not None:
            return self._windowed(unit, checkpoint, self._recovery)
        pages, checkpointer = self._open(unit)
        checkpointer.load(sequence_of(checkpoint))
        return PagedState(pages, checkpointer)

    @property
    def copied_bytes(self) -> int:
        """Bytes of the copies that are kept here for units of other nodes."""
        return self._copies.kept_bytes

    def take_copy(self, unit: str, sequence: int) -> bytes:
        """Return the bytes of a capture that was written here for the unit's standby."""
        return self._copies.take(name_of(unit), sequence)

    def keep_copy(self, unit: str, data: bytes) -> None:
        self._copies.keep(name_of(unit), data)

    def drop_copy(self, unit: str) -> None:
        self._copies.drop(name_of(unit))

    def load_copy(self, unit: str) -> PagedState:
        """Load the copy that is kept here, on any thread."""
        pages, checkpointer = self._open(unit)
        (sequence,) = self._copies.sequences(name_of(unit))
        checkpointer.load(sequence)
        return PagedState(pages, checkpointer)

    def _windowed(self, unit: str, begins: CheckpointId, recovery: QueryRecovery) -> WindowedState:
        """Read the log of a unit. `begins` contains the incarnation of the start that follows."""
        network, checks = recovery.network, recovery.technique_of(unit).windows
        assert checks is not None
        store, name = self._checkpoints.segments(), name_of(unit)
        try:
            loaded = read_unit_log(store, name, begins)
        except LogDamaged as rotten:
            raise CheckpointDamaged(rotten.message) from None
        except FileNotFound as gone:
            # A writer that was wrongly considered dead has trimmed its log meanwhile. Reading again finds the
            # current log.
            raise DiskFault(gone.message) from None
        plan = network.unit(unit)
        return WindowedState(
            PagedState(*self._open(unit)),
            UnitLogWriter(store, name, begins[0], self._threads),
            windows_of(plan),
            plan.inputs,
            {stream: network.types[stream] for stream in plan.outputs},
            checks,
            self._clock,
            loaded,
        )

    def _open(self, unit: str) -> tuple[PageManager, Checkpointer]:
        pages = PageManager(page_bytes=self._bounds.page_bytes, memory_bytes_max=self._bounds.state_bytes_max)
        paired = self._recovery is not None and self._recovery.technique_of(unit).replicas.paired
        return pages, Checkpointer(
            pages,
            self._copies if paired else self._checkpoints.pages(),
            name_of(unit),
            keep=None,
            generations_max=dataflow_copy_generations_max if paired else limits.state_generations_max,
            reserve=self._in_background,
            in_background=self._in_background,
        )
