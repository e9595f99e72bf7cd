"""Datanodes that know the secret and lie, under a seed: nothing that honest datanodes hold is lost."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from simulation.client_steps import write
from simulation.seeds import seeds
from simulation.simulated_cluster import SimulatedCluster
from simulation.terms import CHUNK_BYTES
from simulation.test_cluster_under_a_seed import Model, check

from peacefs.protocol.errors import PeacefsError

_REPLICATION = 3


def written_cluster(seed: int, lose: float) -> tuple[SimulatedCluster, Model]:
    """Return five datanodes and some files."""
    cluster = SimulatedCluster(seed, datanodes=5, lose=lose)
    cluster.until_ready()
    client, model = cluster.client("client"), Model()
    for number in range(5):
        data = Random(number).randbytes((number % 3) * CHUNK_BYTES + 1000)
        for attempt in range(10):
            writing = cluster.start(client, "write", write(f"/f{number}", data, f"{number}-{attempt}"))
            try:
                cluster.world.run_task(writing, limit_s=100.0)
                break
            except PeacefsError:
                model.failed += 1
        model.settle(f"/f{number}", data)
    return cluster, model


def real_replicas(cluster: SimulatedCluster) -> Counter[int]:
    """Return the number of live, honest datanodes that hold each chunk."""
    chunks = cluster.coordinator.cluster.chunks
    held = [replica for datanode in cluster.datanodes if datanode.node.up for replica in datanode.store.replicas()]
    return Counter(replica.chunk for replica in held if chunks.get(replica.chunk) is not None)


@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.parametrize("lose", [0.0, 0.02], ids=["", "messages lost"])
@pytest.mark.evidence("liars-lose-nothing")
def test_liars_claims_never_cause_the_deletion_of_a_real_replica(seed: int, lose: float) -> None:
    """`DropWatch` checks each delete order: enough other honest datanodes must hold the chunk."""
    cluster, model = written_cluster(seed, lose)
    world, random = cluster.world, Random(seed)
    # A delete order for a surplus replica may be lost; it is then sent again.
    assert world.run(lambda: set(real_replicas(cluster).values()) == {_REPLICATION}, limit_s=200.0)
    before = real_replicas(cluster)
    for _ in range(random.randint(1, 3)):
        cluster.add_liar()
    world.run(lambda: False, limit_s=30.0)
    chunks = cluster.coordinator.cluster.chunks
    assert chunks.over, "the liars are believed, so far as it does no harm"
    assert real_replicas(cluster) == before
    # If a datanode is away long enough, its replicas are copied, so there is a surplus when it returns.
    away = random.choice(cluster.datanodes)
    away.crash()
    world.run(lambda: False, limit_s=60.0)
    away.start()
    world.run(lambda: False, limit_s=300.0)
    after = real_replicas(cluster)
    assert after.keys() == before.keys()
    assert min(after.values()) >= _REPLICATION
    world.network.lose = 0.0  # the next step checks the data, not reads over a lossy network
    reader = cluster.client("client-reader")
    for path in sorted(model.possible):
        world.run_task(cluster.start(reader, path, check(path, model)), limit_s=400.0)


@pytest.mark.evidence("liars-lose-nothing")
def test_the_world_notices_what_the_word_of_liars_would_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the test: a coordinator that accepts every answer as proof must be detected."""
    monkeypatch.setattr(
        "peacefs.coordinator.cluster.possession.Evidence.agreeing", lambda self, nodes: list(nodes)
    )
    cluster, _model = written_cluster(1, 0.0)
    for _ in range(3):
        cluster.add_liar()
    with pytest.raises(AssertionError, match="drops"):
        cluster.world.run(lambda: False, limit_s=300.0)
