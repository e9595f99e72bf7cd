"""The producing edge of a stream as a technique wants it: for whom rows are kept, how numbered, and where."""

from __future__ import annotations

from peacefs.dataflow.core.technique import StandbyKind, Technique
from peacefs.dataflow.query.network import Network, UnitPlan
from peacefs.dataflow.unit_state.interface import ROWS_OF, UnitState

from .ha_output import HAOutput, OutputRules
from .replicas import both


def make_output(
    stream: str,
    network: Network,
    technique: Technique,
    *,
    plan: UnitPlan | None = None,
    incarnation: int = 0,
    state: UnitState | None = None,
) -> HAOutput:
    """Make the producing edge of a stream, of a unit or a source; in a unit's state, rows can be kept besides."""
    destinations = network.consumers[stream]
    if technique.standby is StandbyKind.ACTIVE:
        destinations = both(destinations, [each.name for each in network.units])
    kept = technique.takes_checkpoints or technique.standby is not None
    return HAOutput(
        stream,
        destinations,
        technique.retention(destinations),
        rules=OutputRules(
            drops_for_absent=technique.drops_for_absent,
            logs_all=technique.standby is not StandbyKind.ACTIVE,
            retains_for_states=technique.tracks_causes,
        ),
        lineage=0 if plan is None else technique.lineage_of(plan, network, incarnation),
        log=state.numbered_rows(ROWS_OF + stream, network.types[stream].schema) if kept and state else None,
        forgot_rows=plan is not None and technique.forgets_rows and incarnation > 1,
    )
