"""Disks that fail at an awkward moment or become read-only, in the simulated cluster."""

from __future__ import annotations

from random import Random

import pytest
from simulation.client_steps import delete, read, write
from simulation.simulated_cluster import SimulatedCluster
from simulation.simulated_datanode import DISKS, SimulatedDatanode
from simulation.terms import CHUNK_BYTES

from peacefs.protocol.messages import CompleteFile


@pytest.mark.parametrize("size", [3000, CHUNK_BYTES], ids=["small", "large"])
def test_a_disk_that_fails_between_the_receipt_and_the_completion_is_not_believed_for_long(size: int) -> None:
    cluster = SimulatedCluster(seed=11)
    cluster.until_ready()
    client, data = cluster.client("client"), Random(1).randbytes(size)
    answer = cluster.world.coordinator
    assert answer is not None
    victims: list[SimulatedDatanode] = []

    async def fail_first(caller, message):  # type: ignore[no-untyped-def]
        """Break a disk after all receipts were given and before the file is completed. Report the broken disk."""
        if isinstance(message, CompleteFile) and not victims:
            victim = next(each for each in cluster.datanodes if each.store.find(message.chunks[0].chunk))
            victims.append(victim)
            for disk in victim.store.working:
                if disk.store.find(message.chunks[0].chunk) is not None:
                    victim.node.disk.break_down(disk.directory)
                    cluster.world.spawn(victim.node, "looking", victim.store._examine(disk))
            from simulation.simulated_coordinator import sleep

            await sleep(2.0)
        return await answer(caller, message)

    cluster.world.coordinator = fail_first
    cluster.world.run_task(cluster.start(client, "write", write("/f", data, "w")), limit_s=60.0)
    (record,) = cluster.coordinator.metadata.reader().chunks(0, 10)
    assert victims[0].store.find(record.chunk) is None, "it is gone from there"
    assert victims[0].node.name in record.hint, "and its receipt was taken"

    def holding() -> int:
        return sum(each.store.find(record.chunk) is not None for each in cluster.datanodes)

    assert cluster.world.run(lambda: holding() == 3, limit_s=60.0), "nobody finds out"


@pytest.mark.evidence("disk-read-only")
def test_a_read_only_disk_is_read_on_and_the_cluster_goes_on() -> None:
    cluster = SimulatedCluster(seed=12)
    cluster.until_ready()
    client = cluster.client("client")
    contents = {f"/f{n}": Random(n).randbytes(CHUNK_BYTES // 2) for n in range(12)}
    for path, data in contents.items():
        cluster.world.run_task(cluster.start(client, "write", write(path, data, path)), limit_s=60.0)
    victim = cluster.datanodes[0]
    held = len(victim.store.replicas())
    victim.node.disk.make_read_only(DISKS[0])
    for number in range(20, 32):
        contents[f"/f{number}"] = Random(number).randbytes(CHUNK_BYTES // 2)
        writing = cluster.start(client, "write", write(f"/f{number}", contents[f"/f{number}"], f"{number}"))
        cluster.world.run_task(writing, limit_s=60.0)
    cluster.world.run(lambda: False, limit_s=5.0)
    node = cluster.coordinator.cluster.members.get(victim.node.name)
    assert node is not None
    assert sorted(disk.state for disk in node.disks) == ["read-only", "working"]
    assert len(victim.store.replicas()) >= held
    assert cluster.coordinator.cluster.replicas_lost_total == 0
    for path in [f"/f{number}" for number in range(6)]:
        cluster.world.run_task(cluster.start(client, "delete", delete(path)), limit_s=60.0)
        del contents[path]
    assert cluster.world.run(cluster.fully_replicated, limit_s=60.0)
    # The datanode restarts with replicas that it could not delete, which nobody needs any more.
    victim.crash()
    victim.start()
    cluster.until_ready()
    for path, data in contents.items():
        assert cluster.world.run_task(cluster.start(client, "read", read(path)), limit_s=60.0) == data
    assert cluster.world.run(cluster.fully_replicated, limit_s=60.0)
