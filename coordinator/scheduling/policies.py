"""Makes the policies for the running system: their production variants, and the network they plan for.

As in HDFS, the first replica goes on the writer's own node if that is a datanode. If no administrator has
described disks and links, they are assumed to be so fast that no chunk waits. Then the policy only spreads load.
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
from peacefs.peace.policies.timely import TimelyPolicy
from peacefs.protocol.errors import BadRequest, Unsupported
from peacefs.protocol.ids import NodeId
from peacefs.protocol.limits import streams_per_node_default
from peacefs.topology.model import Defaults, Topology
from peacefs.topology.rack_table import tree_of_racks
from peacefs.topology.rate_curve import RateCurve

# How much a policy plans before other tasks get their turn, in requests times servers: 2 to 4 ms.
plan_servers_per_turn: Final = 1600


POLICY_DEFAULT = "express"
SCHEDULING_POLICIES = ("express", "timely", "paper", "random", "flow")

#: The first replica on the writer, the second on another rack, the third on the second's rack.
PRODUCTION_TEMPLATES = (Template.SAME_NODE, Template.OTHER_RACK, Template.SAME_RACK)


class AmpleNetwork:
    """Makes a network from registrations alone, in which each datanode takes `streams_per_node` chunks at once."""

    def __init__(self, streams_per_node: int = streams_per_node_default) -> None:
        usual = Defaults()
        rates = tuple((streams, usual.disk.best_rate * streams) for streams in (1, streams_per_node))
        # Each stream gets the disk's full single-stream rate. Links have `streams_per_node` times the usual rate.
        self._defaults = Defaults(
            usual.server_link_bytes_s * streams_per_node,
            usual.switch_link_bytes_s * streams_per_node,
            RateCurve(tuple(dict.fromkeys(rates))),
        )

    def of(self, racks: Mapping[NodeId, str]) -> Topology:
        """Return the network of these datanodes, given their ids and racks."""
        return tree_of_racks(racks, self._defaults)


def make_policy(name: str, topology: Topology, rng: Random) -> Policy:
    """Return a policy by its name. Raises BadRequest if it is unknown, Unsupported if its solver is missing."""
    match name:
        case "express":
            return ExpressPolicy(topology, rng, writer_holds_replica=True, with_slots=True)
        case "timely":
            return TimelyPolicy(topology, rng, writer_holds_replica=True, with_slots=True)
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
        from peacefs.peace.policies.flow import FlowScheduler  # late, because OR-Tools is slow to import
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
