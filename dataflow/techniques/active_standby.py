"""Active standby: a second node processes everything that the first does, but does not send its output (HA 5.3).

Producers keep a row until both nodes have processed it. The secondary drops its output once consumers have that
from the primary: by number if both number alike, otherwise by high watermarks.
"""

from __future__ import annotations

from peacefs.dataflow.limits import dataflow_acknowledge_interval_s_max, dataflow_tick_s
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


def ActiveStandby(*, interval_s: float = dataflow_tick_s, precise: bool = True) -> Technique:
    """`interval_s`: how often rows are acknowledged and the secondary's output is trimmed."""
    return Technique(
        name="active standby",
        retention=RowStage.RECEIVED,
        replicas=Replicas.FOLLOWER,
        interval_s=checked_interval("ActiveStandby", interval_s, longest_s=dataflow_acknowledge_interval_s_max),
        events=EventsAt.STANDBY if precise else EventsAt.NOWHERE,
        numbering=Numbering.KEPT if precise else Numbering.ANEW,
        gives=ALWAYS_PRECISE if precise else FROM_STATE,
    )
