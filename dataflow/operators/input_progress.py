"""How far each input of an operator has come in event time, and which inputs are idle.

An operator waits for the input that is behind: it goes by the lowest progress. An input that may be idle is
advanced to the others' progress after some time without rows. Clocks are not in the order of rows, so the operator
is then arbitrary; the times that it is told are events of its unit, which replays repeat.
"""

from __future__ import annotations

from collections.abc import Sequence

from peacefs.dataflow.unit_state.operator_state import OperatorState

from .row_times import EARLIEST_US, ENDED_US, Times, running_maxima


class InputProgress:
    """The progress of each input: the latest time that it has reached."""

    def __init__(self, state: OperatorState, ports: int, idle_us: Sequence[int | None] = ()) -> None:
        """`idle_us`: for each input, after how long without rows it is idle; empty if none can be."""
        self._progress = state.cell("progress", [EARLIEST_US] * ports)
        self._idle_us = idle_us
        # [since when, by the told time, each input has had no rows; True if no input was awaited then; the latest
        # progress of a row]
        self._quiet = state.cell("quiet", [[None] * ports, False, EARLIEST_US]) if any(idle_us) else None

    def of(self) -> list[int]:
        return [*self._progress.get()]

    def advance(self, port: int, times: Times) -> Times:
        """Note that an input has these rows, and return its progress at each of them."""
        progress = self.of()
        maxima = running_maxima(times, progress[port])
        progress[port] = int(maxima[-1])
        self._progress.set(progress)
        if self._quiet is not None:
            since, _, latest = self._quiet.get()
            since = [None if each == port else us for each, us in enumerate(since)]
            self._quiet.set([since, False, max(latest, int(maxima[-1]))])
        return maxima

    def end(self, port: int) -> None:
        progress = self.of()
        progress[port] = ENDED_US
        self._progress.set(progress)
        if self._quiet is not None:
            since, _, latest = self._quiet.get()
            self._quiet.set([since, False, latest])

    def on_time(self, now_us: int) -> bool:
        """Advance idle inputs to the others' progress. Return True if one of them has advanced."""
        assert self._quiet is not None
        quiet, settled, latest = self._quiet.get()
        # A clock that began anew is behind.
        quiet = [now_us if since is None else min(since, now_us) for since in quiet]
        progress = self.of()
        idle = [
            after is not None and now_us - since >= after
            for since, after in zip(quiet, self._idle_us, strict=True)
        ]
        awaited = [each for each, is_idle in zip(progress, idle, strict=True) if not is_idle and each < ENDED_US]
        self._quiet.set([quiet, settled or not awaited, latest])
        # If no input is awaited, nothing holds the rows back that have arrived.
        reached = min(awaited) if awaited else latest
        if reached == EARLIEST_US or (settled and not awaited):
            return False
        # One beyond it, since rows may wait for later rows of an input with the same progress.
        advanced = [
            max(each, reached + 1) if is_idle else each for each, is_idle in zip(progress, idle, strict=True)
        ]
        self._progress.set(advanced)
        return advanced != progress
