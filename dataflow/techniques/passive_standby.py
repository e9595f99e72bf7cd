"""Passive standby: every interval, changes of a unit's state are copied to the memory of a second node (HA 5.1).

The second node acknowledges to the producers the rows that a copy covers, so that they drop these. When it takes
over, it loads the last copy, and the producers replay the rest.
"""

from __future__ import annotations

from peacefs.dataflow.limits import dataflow_acknowledge_interval_s_max
from peacefs.dataflow.model.row_stage import RowStage
from peacefs.dataflow.recovery.technique import (
    ALWAYS_PRECISE,
    FROM_STATE,
    EventsAt,
    Numbering,
    Replicas,
    Technique,
)

from .intervals import checked_interval


def PassiveStandby(*, interval_s: float = 0.05, precise: bool = True) -> Technique:
    """`interval_s`: the time between two copies."""
    return Technique(
        name="passive standby",
        retention=RowStage.SAFE,
        replicas=Replicas.COPY,
        interval_s=checked_interval("PassiveStandby", interval_s, longest_s=dataflow_acknowledge_interval_s_max),
        events=EventsAt.STANDBY if precise else EventsAt.NOWHERE,
        numbering=Numbering.KEPT if precise else Numbering.ANEW,
        gives=ALWAYS_PRECISE if precise else FROM_STATE,
    )
