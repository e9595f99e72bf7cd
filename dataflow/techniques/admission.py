"""Admission of a query: whether its techniques can run it, and give the guarantee that its owner asks for.

This is decided before anything begins, so that nobody learns it from a failure. The requirements of a technique
follow from its plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from peacefs.dataflow.core.query_recovery import QueryRecovery
from peacefs.dataflow.model.operator_class import OperatorClass, Recovery, most_general
from peacefs.dataflow.operators.row_operators import ROW_BY_ROW
from peacefs.dataflow.query.network import Network, UnitPlan
from peacefs.dataflow.recovery.technique import FROM_ROWS, EventsAt, Replicas, Storage, Technique
from peacefs.dataflow.ring.program import plan_of
from peacefs.protocol.errors import InvalidQuery

from .active_standby import ActiveStandby
from .amnesia import Amnesia
from .cec import CEC
from .flux import Flux
from .passive_standby import PassiveStandby
from .sguard import SGuard
from .upstream_backup import UpstreamBackup
from .window_units import check_windows

#: Techniques to suggest to users whose own technique gives less than they want.
ALTERNATIVES: Mapping[str, Callable[[], Technique]] = {
    "SGuard(interval_s=1)": lambda: SGuard(interval_s=1),
    "CEC()": CEC,
    "ActiveStandby()": ActiveStandby,
    "Flux()": Flux,
    "PassiveStandby()": PassiveStandby,
    "SGuard(interval_s=1, precise=False)": lambda: SGuard(interval_s=1, precise=False),
    "UpstreamBackup(precise=True)": lambda: UpstreamBackup(precise=True),
    "UpstreamBackup()": UpstreamBackup,
    "Amnesia()": Amnesia,
}
_FROM_BEST = list(Recovery)


def admit(network: Network, technique: Technique, guarantee: Recovery | None = None) -> QueryRecovery:
    """Return how the network's units are recovered.

    Raises InvalidQuery, with advice, unless the techniques can run the network and give the guarantee.
    """
    if not isinstance(network, Network):
        raise InvalidQuery(f"a network is wanted, as query.network(), and not {network!r}")
    if not isinstance(technique, Technique):
        raise InvalidQuery(f"a technique is wanted, as SGuard(interval_s=1), and not {technique!r}")
    if guarantee is not None and not isinstance(guarantee, Recovery):
        raise InvalidQuery(f"guarantee={guarantee!r}: a kind of recovery is wanted, as Recovery.PRECISE")
    check(network, technique)
    promised = promise(network, technique)
    if guarantee is None or suffices(promised, guarantee):
        return QueryRecovery(network, technique)
    kind = network.operator_class
    raise InvalidQuery(
        f"{QueryRecovery(network, technique).name} gives {promised.value} recovery of query {network.name!r}, "
        f"which is {kind} by {_cause(network, kind)}, and {guarantee.value} is asked for: "
        f"{_ways(network, guarantee)}guarantee=Recovery.{promised.name}"
    )


def suffices(promised: Recovery, wanted: Recovery) -> bool:
    """Return True if a kind of recovery is at least as good as another."""
    return _FROM_BEST.index(promised) <= _FROM_BEST.index(wanted)


# -- what techniques promise -----------------------------------------------------------------------


def promise(network: Network, technique: Technique) -> Recovery:
    """Return the kind of recovery that a query gets: that of its technique, or the worst of several."""
    recovery = QueryRecovery(network, technique)
    if len(recovery.techniques) == 1:
        (only,) = recovery.techniques
        if only.events is EventsAt.CONTROLLER and not all(plan.is_recordable for plan in network.units):
            return Recovery.DIVERGENT
        return only.promises(network.operator_class)
    return max((_unit_promise(recovery, plan) for plan in network.units), key=_FROM_BEST.index)


def _unit_promise(recovery: QueryRecovery, plan: UnitPlan) -> Recovery:
    """Return how a failure of one unit affects the query: its own output, and its readers."""
    own = recovery.of(plan.name)
    given = own.technique.promises(plan.operator_class)
    if given is Recovery.PRECISE and own.numbers_anew and plan.operator_class is OperatorClass.ARBITRARY:
        given = Recovery.DIVERGENT
    elif given is Recovery.PRECISE and own.numbers_anew:
        given = Recovery.REPEATING
    if given in (Recovery.PRECISE, Recovery.GAP):
        return given
    # The readers of the output get rows again.
    behind = FROM_ROWS[most_general(each.operator_class for each in _behind(recovery.network, plan))]
    return max(given, behind, key=_FROM_BEST.index)


def _behind(network: Network, plan: UnitPlan) -> list[UnitPlan]:
    """Return all units downstream of a unit."""
    found, made = [], set(plan.outputs)
    for each in network.units:
        if made.intersection(each.inputs):
            found.append(each)
            made.update(each.outputs)
    return found


# -- what techniques need --------------------------------------------------------------------------


def check(network: Network, technique: Technique) -> None:
    """Raise InvalidQuery if the techniques cannot run a network; the message says what to change."""
    recovery = QueryRecovery(network, technique)
    rings = [each for each in recovery.techniques if each.ring is not None]
    if rings and len(recovery.techniques) > 1:
        raise InvalidQuery(
            "PeerRing recovers all units of a query together, and some have techniques of their own: leave those "
            "out, or give PeerRing to no unit"
        )
    if rings:
        plan_of(network)
        return
    unknown = network.techniques.keys() - {plan.name for plan in network.units}
    if unknown:
        raise InvalidQuery(f"unit {min(unknown)!r} has a technique of its own, and no operator: give it one")
    for plan in network.units:
        _check_unit(recovery, plan)


def _check_unit(recovery: QueryRecovery, plan: UnitPlan) -> None:
    technique = recovery.technique_of(plan.name)
    if technique.replicas is Replicas.EQUALS:
        _refuse_arbitrary(plan)
    if technique.stores is Storage.WINDOW_LOG:
        check_windows(plan)
    if technique.causes is not None:
        _refuse_unbounded(plan)
    follows = technique.events is EventsAt.STANDBY
    if follows or (technique.causes is not None and technique.causes.recorded):
        _refuse_unrecorded("upstream backup" if technique.causes is not None else technique.name, plan)
    if technique.causes is not None and technique.causes.recorded:
        _check_phases(plan)
    if len(recovery.techniques) > 1:
        _check_feeders(recovery, plan)


def _check_feeders(recovery: QueryRecovery, plan: UnitPlan) -> None:
    """Refuse a unit that relies on the numbers of its input if a unit before it may begin a new numbering."""
    technique = recovery.technique_of(plan.name)
    logs = technique.stores is Storage.WINDOW_LOG
    pairs = technique.replicas.both_read and technique.precise
    recorded = technique.causes is not None and technique.causes.recorded
    if not (logs or pairs or recorded):
        return
    network = recovery.network
    if logs and plan.name in network.units_behind_chance:
        raise InvalidQuery(
            f"unit {plan.name!r} cannot use cec behind an arbitrary unit, whose rows are others when the query is "
            "resumed: give it SGuard(interval_s=1)"
        )
    for stream in plan.inputs:
        feeder = recovery.producer_of(stream)
        if feeder is not None and feeder.numbers_anew:
            raise InvalidQuery(
                f"unit {plan.name!r} cannot use {technique.name} behind unit {network.producer(stream)!r}, which "
                f"numbers its rows anew after a failure ({feeder.technique.name}): give that one a technique that "
                "is precise, or this one SGuard(interval_s=1)"
            )


def _refuse_arbitrary(plan: UnitPlan) -> None:
    for node in plan.operators:
        if node.specification.operator_class is OperatorClass.ARBITRARY:
            raise InvalidQuery(
                f"Flux cannot pair {node.name!r}, which is arbitrary: its two replicas would make different "
                "rows; use ActiveStandby(), or put it into a partitioned stage, with process(unique=...) "
                "if it is a function that makes the same rows in any order"
            )


def _refuse_unbounded(plan: UnitPlan) -> None:
    for node in plan.operators:
        if not node.specification.bounds_causes:
            raise InvalidQuery(
                f"upstream backup cannot run {node.name!r}: it is not known which rows its state depends on; "
                "say process(..., remembers='10m') if it is rows of the last ten minutes, or use "
                "SGuard(interval_s=1)"
            )


def _refuse_unrecorded(technique: str, plan: UnitPlan) -> None:
    """Refuse an operator for which a replay of the same events may give other rows."""
    for operator in plan.operators:
        why = operator.specification.unrecorded
        if why is not None:
            raise InvalidQuery(
                f"{technique} cannot be precise for operator {operator.name!r}: {why}, or give precise=False"
            )


def _check_phases(plan: UnitPlan) -> None:
    """Refuse an operator with phases if its input may be wrong at first, from a unit that begins empty."""
    exact = set(plan.inputs)
    for node in plan.operators:
        if node.specification.keeps_phases and not exact.issuperset(node.inputs):
            raise InvalidQuery(
                f"upstream backup cannot be precise with {node.name!r} behind {node.inputs[0]!r} in unit "
                f"{plan.name!r}: a unit that begins empty gives it other rows at first; put it into a unit of its "
                "own with unit(), or use SGuard(interval_s=1)"
            )
        if isinstance(node.specification, ROW_BY_ROW) and exact.issuperset(node.inputs):
            exact.add(node.name)


# -- what to say -----------------------------------------------------------------------------------


def _ways(network: Network, guarantee: Recovery) -> str:
    found = []
    for written, make in ALTERNATIVES.items():
        technique = make()
        try:
            check(network, technique)
        except InvalidQuery:
            continue
        if suffices(promise(network, technique), guarantee):
            found.append(written)
    return f"use {', '.join(found)}, or " if found else "no technique gives that here, so use "


def _cause(network: Network, kind: OperatorClass) -> str:
    names = [node.name for node in network.operators if node.specification.operator_class is kind]
    return f"{names[0]!r}" if names else "having no operator"
