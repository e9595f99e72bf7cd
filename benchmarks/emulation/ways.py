"""The ways of placing chunks that are compared, each in the running system and in the simulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from peacefs.peace.policies.express import ExpressPolicy
from peacefs.peace.policies.interface import Policy
from peacefs.peace.policies.random import RandomPolicy
from peacefs.peace.simulator.comparison import paper_policy
from peacefs.topology.model import Topology

#: Chunks in flight per writer if no policy limits them.
PARALLEL = 4


@dataclass(frozen=True, slots=True)
class Way:
    """A policy, and whether the writer's node holds the first replica (HDFS) or no replica (footnote 6)."""

    name: str
    policy: str
    writer_excluded: bool
    simulated: Callable[[Topology, Random], Policy]


WAYS = (
    Way(
        "HDFS, local first",
        "random",
        False,
        lambda topology, rng: RandomPolicy(topology, rng, chunks_per_writer=PARALLEL, writer_holds_replica=True),
    ),
    Way(
        "HDFS",
        "random",
        True,
        lambda topology, rng: RandomPolicy(topology, rng, chunks_per_writer=PARALLEL),
    ),
    Way("paper", "paper", True, paper_policy()),
    Way("express", "express", True, ExpressPolicy),
)

#: The way with which the others are compared.
BASELINE = WAYS[1]
