"""Upstream backup: producers keep the rows that their consumers' states depend on (HA, section 5.2).

Nothing is stored. Every interval a unit tells its producers which rows it has (level 0), and which rows no longer
matter to itself and to the units after it (level 1). After a failure a unit begins empty, requests the oldest rows
that its producers have, and rebuilds its state from them. Consumers get rows again. Windows that were open at the
first of these rows are wrong for a while.

With `precise` (HA, section 6) the controller stores for each unit a position to begin after, the high watermark up
to which consumers have its output, and the number of the last of these rows. A restarted unit suppresses its
output up to the watermark, and then continues the numbering. Some units cannot restore their state from rows
alone. For them the controller also stores determinants: the phases of windows at that position and, for arbitrary
units, the events since. It gets these before the output is sent.

In the paper a row is dropped once the unit after the next has received everything that it caused
(`adjacent_failures=False`). This keeps less, but if neighbours die at about the same time, rows are lost, which
stops the query. Otherwise a row is kept until no unit downstream depends on it, and any units may die together.
"""

from __future__ import annotations

from peacefs.dataflow.limits import dataflow_acknowledge_interval_s_max
from peacefs.dataflow.model.row_stage import RowStage
from peacefs.dataflow.recovery.technique import (
    ALWAYS_PRECISE,
    FROM_ROWS,
    CauseTrimming,
    EventsAt,
    Numbering,
    Technique,
)

from .intervals import checked_interval


def UpstreamBackup(
    *, interval_s: float = 0.05, precise: bool = False, adjacent_failures: bool = True
) -> Technique:
    """`interval_s`: how often producers are told which rows no longer matter."""
    return Technique(
        name="upstream-backup",
        retention=RowStage.SAFE,
        interval_s=checked_interval("UpstreamBackup", interval_s, longest_s=dataflow_acknowledge_interval_s_max),
        causes=CauseTrimming(RowStage.SAFE if adjacent_failures else RowStage.RECEIVED, recorded=precise),
        events=EventsAt.CONTROLLER if precise else EventsAt.NOWHERE,
        numbering=Numbering.KEPT if precise else Numbering.ANEW,
        gives=ALWAYS_PRECISE if precise else FROM_ROWS,
    )
