"""Dry runs of a policy, round by round."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from peacefs.peace.dry_run import plan_rounds
from peacefs.peace.policies.ledger import WriteSet
from peacefs.peace.simulator.comparison import POLICIES
from peacefs.peace.simulator.scenarios import star
from peacefs.topology.model import Topology

CHUNK = 64_000_000


@pytest.mark.parametrize("name", ["random", "paper", "flow", "express"])
def test_every_chunk_is_planned_once(name: str) -> None:
    topology = star(3, 5, 2.0)
    sets = [WriteSet(writer, writer, 3, (CHUNK,) * 3) for writer in sorted(topology.servers)]
    rounds = plan_rounds(POLICIES[name](topology, Random(0)), sets)
    planned = Counter((grant.write_set, grant.chunk) for grants in rounds for grant in grants)
    assert planned == Counter((each.name, chunk) for each in sets for chunk in range(3))


@pytest.mark.parametrize("name", ["flow", "express"])
def test_thousands_of_chunks_are_planned_round_by_round_within_all_slots(name: str) -> None:
    """10,000 chunks of three replicas on 1,000 nodes with two slots each: at most 666 per round."""
    topology = star(25, 40, 4.0)
    sets = [WriteSet(writer, writer, 3, (CHUNK,) * 10) for writer in sorted(topology.servers)]
    rounds = plan_rounds(POLICIES[name](topology, Random(0)), sets)
    assert sum(map(len, rounds)) == 10_000
    for grants in rounds:
        assert max(Counter(node for grant in grants for node in grant.chain).values()) <= 2
        assert len(grants) <= 666
    assert len(rounds) <= (20 if name == "express" else 35)


def test_set_that_the_cluster_cannot_take_stays_waiting() -> None:
    policy = POLICIES["express"](Topology(), Random(0))
    assert plan_rounds(policy, [WriteSet("s", None, 3, (CHUNK,) * 2)]) == []
    assert policy.chunks_waiting == 2
