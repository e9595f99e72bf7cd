"""The producing edge of a stream under its technique: for whom rows are kept, how they are numbered, and where."""

from __future__ import annotations

from peacefs.dataflow.model.row_stage import RowStage
from peacefs.dataflow.query.network import UnitPlan
from peacefs.dataflow.unit_state.interface import ROWS_OF, UnitState

from .ha_output import HAOutput, OutputRules
from .query_recovery import QueryRecovery


def make_output(
    stream: str,
    recovery: QueryRecovery,
    *,
    plan: UnitPlan | None = None,
    incarnation: int = 0,
    state: UnitState | None = None,
) -> HAOutput:
    """Make the producing edge of a stream of a unit or a source. With `state`, rows can also be kept in it."""
    own = None if plan is None else recovery.of(plan.name)
    technique = recovery.technique if own is None else own.technique
    kept = technique.takes_checkpoints or technique.replicas.paired
    forgets = technique.causes is not None and technique.causes.level is RowStage.RECEIVED
    schema = recovery.network.types[stream].schema
    return HAOutput(
        stream,
        recovery.destinations(stream),
        rules=OutputRules(
            logs_all=not technique.replicas.both_read, retains_for_states=recovery.retains_for_states(stream)
        ),
        lineage=0 if own is None else own.lineage(incarnation),
        log=state.numbered_rows(ROWS_OF + stream, schema) if kept and state else None,
        forgot_rows=plan is not None and forgets and incarnation > 1,
    )
