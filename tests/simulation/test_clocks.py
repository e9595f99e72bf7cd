"""Wall clocks jump forward and back; measurements that use monotonic clocks stay right."""

from __future__ import annotations

from random import Random

import pytest
from simulation.client_steps import append_from, read, write, write_from
from simulation.simulated_cluster import SimulatedCluster

from peacefs.client.transfer.byte_stream import ByteStream
from peacefs.protocol.limits import heartbeat_interval_s, unreferenced_chunk_kept_s

_HOUR_S = 3600.0


def let_pass(cluster: SimulatedCluster, seconds: float) -> None:
    cluster.world.run(lambda: False, limit_s=seconds)


def replicas(cluster: SimulatedCluster) -> int:
    return sum(len(datanode.store.replicas()) for datanode in cluster.datanodes)


@pytest.mark.parametrize("ahead_s", [-1000 * _HOUR_S, -1.0, 2 * _HOUR_S, 1000 * _HOUR_S])
@pytest.mark.evidence("clocks-jump")
def test_a_datanode_whose_clock_is_wrong_takes_and_gives_as_any(ahead_s: float) -> None:
    """Tokens are checked against the coordinator's clock, which every heartbeat carries."""
    cluster = SimulatedCluster(seed=1, datanodes=3)
    cluster.until_ready()
    client = cluster.client("client")
    for turn, datanode in enumerate(cluster.datanodes):
        datanode.node.clock_ahead_s = ahead_s
        data = Random(turn).randbytes(400_000)
        cluster.world.run_task(cluster.start(client, "write", write(f"/{turn}", data, f"{turn}")), limit_s=60.0)
        assert cluster.world.run_task(cluster.start(client, "read", read(f"/{turn}")), limit_s=60.0) == data
        let_pass(cluster, 2 * heartbeat_interval_s)
        assert replicas(cluster) == 3 * (turn + 1), "nobody is left out"


@pytest.mark.parametrize("ahead_s", [-1000 * _HOUR_S, 1000 * _HOUR_S])
@pytest.mark.evidence("clocks-jump")
def test_when_the_coordinators_clock_jumps_everybody_follows_and_nobody_is_taken_for_dead(ahead_s: float) -> None:
    cluster = SimulatedCluster(seed=2, datanodes=3)
    cluster.until_ready()
    client = cluster.client("client")
    cluster.world.run_task(cluster.start(client, "write", write("/before", b"1", "before")), limit_s=60.0)
    cluster.coordinator.node.clock_ahead_s = ahead_s
    let_pass(cluster, 2 * heartbeat_interval_s)
    cluster.world.run_task(cluster.start(client, "write", write("/after", b"2", "after")), limit_s=60.0)
    for path, data in (("/before", b"1"), ("/after", b"2")):
        assert cluster.world.run_task(cluster.start(client, "read", read(path)), limit_s=60.0) == data
    let_pass(cluster, 60.0)
    assert cluster.coordinator.cluster.replicas_lost_total == 0
    assert len(cluster.coordinator.cluster.members.alive()) == 3


@pytest.mark.parametrize("extends", [False, True], ids=["a new file", "a file that is extended"])
@pytest.mark.evidence("clocks-jump")
def test_slow_writer_loses_nothing_while_the_clock_of_the_coordinator_is_set_back(extends: bool) -> None:
    """No wall clock decides when chunks without a file are deleted."""
    cluster = SimulatedCluster(seed=3)
    cluster.until_ready()
    client = cluster.client("client")
    cluster.world.run_task(cluster.start(client, "write", write("/f", b"sound", "sound")), limit_s=60.0)
    let_pass(cluster, 2 * heartbeat_interval_s)
    sound = replicas(cluster)

    stream, data = ByteStream(), Random(3).randbytes((1 << 20) + 1)
    stream.feed(data)
    writing = cluster.start(
        client, "write slowly", append_from("/f", stream, "slow") if extends else write_from("/late", stream)
    )
    assert cluster.world.run(lambda: replicas(cluster) > sound, limit_s=30.0)
    cluster.coordinator.node.clock_ahead_s = -1000 * _HOUR_S
    let_pass(cluster, 5 * unreferenced_chunk_kept_s)
    stream.finish()
    cluster.world.run_task(writing, limit_s=300.0)
    path, expected = ("/f", b"sound" + data) if extends else ("/late", data)
    assert cluster.world.run_task(cluster.start(client, "read", read(path)), limit_s=60.0) == expected
