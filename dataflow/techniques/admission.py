"""Admission of a query: whether a technique can run it, and gives the guarantee that its owner asks for.

It is decided before anything begins, so that nobody learns of it from a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from peacefs.dataflow.core.technique import Technique
from peacefs.dataflow.model.operator_class import OperatorClass, Recovery
from peacefs.dataflow.query.network import Network
from peacefs.protocol.errors import InvalidQuery

from .active_standby import ActiveStandby
from .amnesia import Amnesia
from .cec import CEC
from .flux import Flux
from .passive_standby import PassiveStandby
from .sguard import SGuard
from .upstream_backup import UpstreamBackup

#: Techniques as users write them, for those whose own gives less than they want.
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


def admit(network: Network, technique: Technique, guarantee: Recovery | None = None) -> None:
    """Raise InvalidQuery, with what to do, unless the technique can run the network and promises so much."""
    if not isinstance(network, Network):
        raise InvalidQuery(f"a network is wanted, as query.network(), and not {network!r}")
    if not isinstance(technique, Technique):
        raise InvalidQuery(f"a technique is wanted, as SGuard(interval_s=1), and not {technique!r}")
    if guarantee is not None and not isinstance(guarantee, Recovery):
        raise InvalidQuery(f"guarantee={guarantee!r}: a kind of recovery is wanted, as Recovery.PRECISE")
    technique.check(network)
    promised = technique.promises_for(network)
    if guarantee is None or suffices(promised, guarantee):
        return
    kind = network.operator_class
    raise InvalidQuery(
        f"{technique.name} gives {promised.value} recovery of query {network.name!r}, which is {kind} by "
        f"{_cause(network, kind)}, and {guarantee.value} is asked for: "
        f"{_ways(network, guarantee)}guarantee=Recovery.{promised.name}"
    )


def suffices(promised: Recovery, wanted: Recovery) -> bool:
    """Return whether a kind of recovery is as good as another, or better."""
    return _FROM_BEST.index(promised) <= _FROM_BEST.index(wanted)


def _ways(network: Network, guarantee: Recovery) -> str:
    found = []
    for written, make in ALTERNATIVES.items():
        technique = make()
        try:
            technique.check(network)
        except InvalidQuery:
            continue
        if suffices(technique.promises_for(network), guarantee):
            found.append(written)
    return f"use {', '.join(found)}, or " if found else "no technique gives that here, so use "


def _cause(network: Network, kind: OperatorClass) -> str:
    names = [node.name for node in network.operators if node.specification.operator_class is kind]
    return f"{names[0]!r}" if names else "having no operator"
