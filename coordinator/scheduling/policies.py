"""The policies as the running system uses them: their production variants, and the network they plan for.

HDFS's way with the first replica: on the writer's own node if it is one of ours. Where nobody has said what
disks and links carry, capacities are so ample that no chunk waits for what may not be short: the policy then
spreads load and no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final

from peacefs.coordinator.limits import write_set_chunks_max
from peacefs.peace.policies.algorithm1 import Template
from peacefs.peace.policies.express import ExpressPolicy
from peacefs.peace.policies.interface import Policy
from peacefs.peace.policies.paper import PaperPolicy
from peacefs.peace.policies.random import RandomPolicy
from peacefs.protocol.errors import BadRequest, Unsupported
from peacefs.protocol.ids import NodeId
from peacefs.protocol.limits import streams_per_node_default
from peacefs.topology.model import Defaults, Topology
from peacefs.topology.rack_table import tree_of_racks
from peacefs.topology.rate_curve import RateCurve

# Policies that plan in steps look at so much before others get their turn, as requests times servers: 2 to 4 ms.
plan_servers_per_turn: Final = 1600


POLICY_DEFAULT = "express"
SCHEDULING_POLICIES = ("express", "paper", "random", "flow")

#: The first replica on the writer, the second on another rack, the third on the second's rack.
PRODUCTION_TEMPLATES = (Template.SAME_NODE, Template.OTHER_RACK, Template.SAME_RACK)


class AmpleNetwork:
    """The network that grew from registrations, each datanode taking `streams_per_node` chunks at once."""

    def __init__(self, streams_per_node: int = streams_per_node_default) -> None:
        usual = Defaults()
        rates = tuple((streams, usual.disk.best_rate * streams) for streams in (1, streams_per_node))
        # The disk keeps one stream's rate for each: a link carries as many as its share of that allows.
        self._defaults = Defaults(
            usual.server_link_bytes_s * streams_per_node,
            usual.switch_link_bytes_s * streams_per_node,
            RateCurve(tuple(dict.fromkeys(rates))),
        )

    def of(self, racks: Mapping[NodeId, str]) -> Topology:
        """These datanodes, by id and rack."""
        return tree_of_racks(racks, self._defaults)


def make_policy(name: str, topology: Topology, rng: Random) -> Policy:
    """Raises BadRequest for a policy that there is not, Unsupported for one whose solver is not installed."""
    match name:
        case "express":
            return ExpressPolicy(topology, rng, writer_holds_replica=True, with_slots=True)
        case "random":
            return RandomPolicy(topology, rng, chunks_per_writer=write_set_chunks_max, writer_holds_replica=True)
        case "paper":
            return _in_steps(topology, rng)
        case "flow":
            return _flow(topology, rng)
        case _:
            raise BadRequest(f"there is no policy {name!r}; there are {', '.join(SCHEDULING_POLICIES)}")


def _in_steps(topology: Topology, rng: Random) -> PaperPolicy:
    return PaperPolicy(
        topology,
        None,
        rng,
        templates=PRODUCTION_TEMPLATES,
        servers_per_turn=plan_servers_per_turn,
    )


def _flow(topology: Topology, rng: Random) -> PaperPolicy:
    try:
        from peacefs.peace.policies.flow import FlowScheduler  # late: OR-Tools is an extra, and slow to import
    except ImportError:
        raise Unsupported("the policy flow needs OR-Tools: install peacefs[flow]") from None
    return PaperPolicy(
        topology,
        None,
        rng,
        templates=PRODUCTION_TEMPLATES,
        schedule=FlowScheduler(),
        servers_per_turn=plan_servers_per_turn,
    )
