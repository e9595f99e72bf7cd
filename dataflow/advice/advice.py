"""Choose the cheapest technique that can run a query and meets the demand of its owner.

The cost of a technique is the number of processors that it adds plus the number of links that its bytes fill. So a
technique that multiplies the bytes of a query costs little where links are idle. Each technique that is refused
comes with the reason.
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
    """The limits that the owner of a query sets. None means no limit."""

    guarantee: Recovery = Recovery.PRECISE
    #: Seconds from the death of a node until its unit has caught up.
    recovery_s_max: float | None = None
    #: Processor time and bytes over links and into files, as shares of the query's own.
    processor_max: float | None = None
    traffic_max: float | None = None
    memory_bytes_max: float | None = None


@dataclass(frozen=True)
class Option:
    """A technique for a query. If it cannot run or misses the demand, `refused` says why; otherwise it is empty.

    `cost`: the number of processors and links that it adds.
    """

    technique: str
    promises: Recovery | None
    estimate: Estimate | None
    #: Includes the time to detect the failure.
    recovery_s: float | None
    refused: str = ""
    cost: float = float("inf")


def traffic(costs: Estimate) -> float:
    """Return the bytes over links and into files, as a share of the bytes of the rows."""
    return costs.links + costs.files


#: Each technique as a user would construct it, from the parameters of the closed forms.
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
    """Return all techniques, best first. The first one is the advice, unless it is `refused`."""
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
    processors = costs.processor * load.processors
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
