"""Decides when a unit should write its next checkpoint, by the phase that the coordinator proposes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from peacefs.protocol.errors import PeacefsError

if TYPE_CHECKING:
    from peacefs.client.filesystem import PeaceFileSystem

#: Number of periods after which the phase is requested again. The coordinator keeps it twice as long.
_ASK_PERIODS: Final = 5

log = logging.getLogger("peacefs.client")


class CheckpointClock:
    """The times of a unit's checkpoints, one every `period_s`. Not thread-safe.

    With `phase_s`, the clock uses this phase and asks nobody. Otherwise it follows the coordinator's proposal. If
    the coordinator is unreachable, the clock keeps the last proposal, or begins now.
    """

    def __init__(
        self,
        files: PeaceFileSystem,
        root: str,
        period_s: float,
        *,
        size: int = 0,
        phase_s: float | None = None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """`size` is the expected size of a checkpoint in bytes, 0 if unknown. It may be changed later."""
        self.size = size
        self._files = files
        self._root = root
        self._period_s = period_s
        self._is_fixed = phase_s is not None
        self._phase_s = phase_s
        self._wall_clock = wall_clock
        self._asked_s = float("-inf")

    @property
    def phase_s(self) -> float:
        """The offset of the checkpoint time within a period, in seconds of Unix time."""
        now_s = self._wall_clock()
        if not self._is_fixed and now_s - self._asked_s >= _ASK_PERIODS * self._period_s:
            self._asked_s = now_s
            try:
                self._phase_s = self._files.propose_phase(self._root, self._period_s, self.size).phase_s
            except PeacefsError as error:
                log.warning("%s keeps its phase: %s", self._root, error.message)
        if self._phase_s is None:
            self._phase_s = now_s % self._period_s
        return self._phase_s

    def wait_s(self) -> float:
        """Return the seconds until the next checkpoint should begin, at most one period."""
        return (self.phase_s - self._wall_clock()) % self._period_s
