"""CEC: each unit logs its output together with checkpoints of single windows (Sebepou and Magoutis, CEC).

After a failure any node reads the unit's log backwards until it has found each open window once. The producers
then repeat the rows since the oldest of those windows, and each window ignores the rows that it has seen. Recovery
is precise.
"""

from __future__ import annotations

from typing import Final

from peacefs.dataflow.limits import dataflow_acknowledge_interval_s_max
from peacefs.dataflow.model.row_stage import RowStage
from peacefs.dataflow.recovery.technique import PRECISE_UNLESS_ARBITRARY, Storage, Technique
from peacefs.dataflow.window_checkpoints.extent import CheckPolicy, Targets, WindowChoice
from peacefs.protocol.errors import InvalidQuery

from .intervals import checked_interval

# How often the log of a unit is committed.
cec_commit_s: Final = 0.05


def CEC(
    choice: WindowChoice | None = None,
    *,
    interval_s: float = 0.005,
    period_s: float = 0.1,
    commit_s: float = cec_commit_s,
) -> Technique:
    """Return the CEC technique. `CEC()` keeps both of the paper's targets at their defaults.

    choice       which windows are checked: `Targets(extent=Q, replay_rows=U)`, with Q as a multiple of the open
                 windows, `CostBenefit(failures_per_day=...)`, or `OpenOnly()`
    interval_s   CI, the time that checks may take in each period
    period_s     CP, the length of a period
    commit_s     how often the log is committed
    """
    longest_s = dataflow_acknowledge_interval_s_max
    for name, value in (("interval_s", interval_s), ("period_s", period_s), ("commit_s", commit_s)):
        checked_interval("CEC", value, longest_s=longest_s, name=name)
    if interval_s > period_s:
        raise InvalidQuery(
            f"CEC(interval_s={interval_s}, period_s={period_s}): checks take some of each period, and not more"
        )
    if choice is not None and (isinstance(choice, type) or not isinstance(choice, WindowChoice)):
        raise InvalidQuery(
            f"CEC({choice!r}): a choice of windows is wanted: Targets(), CostBenefit() or OpenOnly()"
        )
    return Technique(
        name="cec",
        retention=RowStage.SAFE,
        stores=Storage.WINDOW_LOG,
        interval_s=commit_s,
        windows=CheckPolicy(choice if choice is not None else Targets(), interval_s, period_s),
        gives=PRECISE_UNLESS_ARBITRARY,
    )
