"""SGuard: each unit stores checkpoints while it continues, and its producers keep the rows since (SGuard 3 and 4).

A checkpoint is taken every interval, and earlier if producers would run out of room for the rows since the last
one.

After a failure any node loads the latest checkpoint, and asks the producers for all rows after it. Rows that it
produces again have the same numbers as before, so that consumers drop them: recovery is precise. An
arbitrary unit repeats its events since the checkpoint; the controller keeps these before output is sent (HA 6).
With `precise=False` a recovered unit begins a new numbering, and consumers get rows again.
"""

from __future__ import annotations

from typing import Final

from peacefs.dataflow.model.row_stage import RowStage
from peacefs.dataflow.recovery.technique import (
    ALWAYS_PRECISE,
    FROM_STATE,
    EventsAt,
    Numbering,
    Storage,
    Technique,
)

from .intervals import checked_interval

dataflow_checkpoint_interval_s_max: Final = 86_400.0


def SGuard(*, interval_s: float, precise: bool = True) -> Technique:
    """Store a checkpoint of each unit every `interval_s` seconds."""
    return Technique(
        name="sguard",
        retention=RowStage.SAFE,
        stores=Storage.CHECKPOINTS,
        interval_s=checked_interval("SGuard", interval_s, longest_s=dataflow_checkpoint_interval_s_max),
        events=EventsAt.CONTROLLER if precise else EventsAt.NOWHERE,
        numbering=Numbering.KEPT if precise else Numbering.ANEW,
        gives=ALWAYS_PRECISE if precise else FROM_STATE,
    )
