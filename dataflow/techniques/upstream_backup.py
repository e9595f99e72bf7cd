"""Upstream backup: producers keep the rows that their consumers' states depend on (HA, section 5.2).

Nothing is stored. Every interval a unit tells its producers which rows it has (level 0), and which rows matter no
more to itself and, through it, to those that follow (level 1). After a failure a unit begins empty, asks for the
oldest rows that its producers have, and makes its state from them again. Consumers get rows again; windows that
were open at the first of the rows come out wrong for a while.

With `precise` (HA, section 6) the controller holds, for each unit, a position to begin after, the high watermark
up to which its rows are known to the consumers, and their number. A unit that begins again keeps to itself what it
makes up to the watermark, and goes on with the numbers. For units that do not come to the state that they had by
themselves it holds determinants as well: the phases of windows at that position, and, for arbitrary units, the
events since, of which it is told before output leaves.

In the paper a row goes once the next unit but one has received what it caused (`adjacent_failures=False`): less is
kept, and neighbours that die at about the same time lose rows, which stops the query. Otherwise a row is kept
until nobody downstream depends on it, and any units may die together.
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
    """`interval_s`: so often producers are told which rows matter no more."""
    return Technique(
        name="upstream-backup",
        retention=RowStage.SAFE,
        interval_s=checked_interval("UpstreamBackup", interval_s, longest_s=dataflow_acknowledge_interval_s_max),
        causes=CauseTrimming(RowStage.SAFE if adjacent_failures else RowStage.RECEIVED, recorded=precise),
        events=EventsAt.CONTROLLER if precise else EventsAt.NOWHERE,
        numbering=Numbering.KEPT if precise else Numbering.ANEW,
        gives=ALWAYS_PRECISE if precise else FROM_ROWS,
    )
