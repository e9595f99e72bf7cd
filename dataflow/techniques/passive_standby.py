"""Passive standby: what changed in a unit's state goes to the memory of a second node every interval (HA 5.1).

That node acknowledges to the producers what a copy covers, so that they drop it. When it takes over it loads the
last copy, and the producers replay the rest.
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
    """`interval_s`: the time from one copy to the next."""
    return Technique(
        name="passive standby",
        retention=RowStage.SAFE,
        replicas=Replicas.COPY,
        interval_s=checked_interval("PassiveStandby", interval_s, longest_s=dataflow_acknowledge_interval_s_max),
        events=EventsAt.STANDBY if precise else EventsAt.NOWHERE,
        numbering=Numbering.KEPT if precise else Numbering.ANEW,
        gives=ALWAYS_PRECISE if precise else FROM_STATE,
    )
