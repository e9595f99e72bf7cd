"""Choose the technique for a query: the one that costs least of those that may run it and keep what is wanted.

A cost is the processors that a technique adds and the links that its bytes fill, a whole one of either weighed
alike: many times the query's own bytes matter little where links are empty. What is not chosen has its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from peacefs.dataflow.model.operator_class import Recovery
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.recovery.technique import Technique
from peacefs.dataflow.techniques.active_standby import ActiveStandby
from peacefs.dataflow.techniques.admission import check, promise, suffices
from peacefs.dataflow.techniques.amnesia import Amnesia
from peacefs.dataflow.techniques.cec import CEC
from peacefs.dataflow.techniques.flux import Flux
from peacefs.dataflow.techniques.passive_standby import PassiveStandby
from peacefs.dataflow.techniques.peer_ring import PeerRing
from peacefs.dataflow.techniques.sguard import SGuard
from peacefs.dataflow.techniques.upstream_backup import UpstreamBackup
from peacefs.protocol.errors import InvalidQuery

from .estimates import Estimate, estimate
from .load import Machines, Parameters, QueryLoad


@dataclass(frozen=True)
class Demand:
    """Limits of what the owner of a query can bear. None: any."""

    guarantee: Recovery = Recovery.PRECISE
    #: From the death of a node until its unit has caught up, seconds.
    recovery_s_max: float | None = None
    #: Processor time and bytes over links and into files, as shares of the query's own.
    processor_max: float | None = None
    traffic_max: float | None = None
    memory_bytes_max: float | None = None


@dataclass(frozen=True)
class Option:
    """A technique for a query. `refused` is empty if it may run and keeps the demand, else says why not.

    `cost`: processors and links that it adds.
    """

    technique: str
    promises: Recovery | None
    estimate: Estimate | None
    #: With the detection.
    recovery_s: float | None
    refused: str = ""
    cost: float = float("inf")


def traffic(costs: Estimate) -> float:
    """Return bytes over links and into files, as a share of those of the rows."""
    return costs.links + costs.files


#: Techniques as their users write them, by the parameters that the closed forms are given.
WRITTEN: Mapping[str, Callable[[Parameters], Technique]] = {
    "Amnesia": lambda _: Amnesia(),
    "UpstreamBackup": lambda each: UpstreamBackup(interval_s=each.interval_s),
    "UpstreamBackup, precise": lambda each: UpstreamBackup(interval_s=each.interval_s, precise=True),
    "PassiveStandby": lambda each: PassiveStandby(interval_s=each.interval_s),
    "ActiveStandby": lambda each: ActiveStandby(interval_s=each.interval_s),
    "SGuard": lambda each: SGuard(interval_s=each.checkpoint_s),
    "CEC": lambda each: CEC(commit_s=each.interval_s),
    "Flux": lambda _: Flux(),
    "PeerRing": lambda each: PeerRing(each.neighbours, checkpoint_s=each.checkpoint_s),
}


def advise(
    network: Network,
    load: QueryLoad,
    demand: Demand | None = None,
    around: Machines | None = None,
    parameters: Parameters | None = None,
) -> Sequence[Option]:
    """Return every technique, the best first; the first is advice if it is not `refused`."""
    demand, around, parameters = demand or Demand(), around or Machines(), parameters or Parameters()
    options = [
        _option(written, make(parameters), network, load, demand, around, parameters)
        for written, make in WRITTEN.items()
    ]
    return sorted(options, key=lambda each: (bool(each.refused), each.cost, each.recovery_s or 0.0))


def _option(
    written: str,
    technique: Technique,
    network: Network,
    load: QueryLoad,
    demand: Demand,
    around: Machines,
    parameters: Parameters,
) -> Option:
    try:
        check(network, technique)
    except InvalidQuery as fault:
        return Option(written, None, None, None, str(fault))
    promised = promise(network, technique)
    costs = estimate(written.partition(",")[0], load, around, parameters)
    recovery_s = around.detection_s + costs.recovery_s
    refused = _too_much(promised, costs, recovery_s, demand)
    processors = costs.processor * load.rate * load.processing_s
    links = traffic(costs) * load.bytes_s / around.link_bytes_s
    return Option(written, promised, costs, recovery_s, refused, processors + links)


def _too_much(promised: Recovery, costs: Estimate, recovery_s: float, demand: Demand) -> str:
    if not suffices(promised, demand.guarantee):
        return f"gives {promised.value} recovery, {demand.guarantee.value} is wanted"
    limits = (
        ("recovers in", recovery_s, demand.recovery_s_max, "s"),
        ("adds to the processor's work", costs.processor, demand.processor_max, ""),
        ("adds to the bytes that move", traffic(costs), demand.traffic_max, ""),
        ("keeps in memory", costs.memory_bytes, demand.memory_bytes_max, "bytes"),
    )
    for what, found, limit, unit in limits:
        if limit is not None and found > limit:
            return f"{what} {found:,.3g} {unit}".rstrip() + f", at most {limit:,.3g} is wanted"
    return ""
