"""Readers beside writers of the same names, under a seed: listed files can be read, and each read is one version.

Commits become visible before the coordinator's event loop hears of them (`writer_thread`). Opened files are
replaced at once, in every way in which a file can be replaced.
"""

from __future__ import annotations

from random import Random

import pytest
from simulation.client_requests import Open, Opened
from simulation.client_steps import change, read_opened, write
from simulation.name_changes import Change
from simulation.saboteur import Saboteur
from simulation.seeds import seeds
from simulation.shared_files import BESIDE, SHARED, Histories, SharingReader, SharingWriter
from simulation.simulated_cluster import SimulatedCluster
from support.long_runs import often

from peacefs.coordinator.limits import freed_chunks_kept_s
from peacefs.protocol.limits import startup_hold_s
from peacefs.runtime import effects as fx

#: The number of changes per writer.
_OPERATIONS = often(12, 40)


@pytest.mark.parametrize("crashes", [False, True], ids=["calm", "with crashes"])
@pytest.mark.parametrize("seed", seeds(6))
@pytest.mark.evidence("visible-is-readable")
def test_opens_give_one_version_that_was_there_and_listed_names_can_be_read(seed: int, crashes: bool) -> None:
    print(f"seed {seed}")
    cluster, random = SimulatedCluster(seed), Random(seed)
    cluster.until_ready()
    client = cluster.client("client")
    for directory in (SHARED, BESIDE):
        making = change(Change("mkdirs", directory, "simulated", directory, number=0o755))
        cluster.world.run_task(cluster.start(client, "mkdirs", making), limit_s=60.0)
    histories = Histories(cluster)
    writers = [SharingWriter(f"writer-{number}", histories, Random(random.random())) for number in range(2)]
    readers = [
        SharingReader(cluster, histories, Random(random.random()), waits=waits) for waits in (0.0, 0.0, 0.3, 0.7)
    ]
    saboteur = Saboteur(cluster, random, effects_between=1500) if crashes else None
    writing = [
        cluster.start(cluster.client(f"client-{number}"), "writing", writer.work(_OPERATIONS))
        for number, writer in enumerate(writers)
    ]

    def is_over() -> bool:
        return all(task.done for task in writing)

    reading = [
        cluster.start(cluster.client(f"client-reader-{number}"), "reading", reader.work(is_over))
        for number, reader in enumerate(readers)
    ]
    for task in (*writing, *reading):
        cluster.world.run_task(task, limit_s=20_000.0)
    acknowledged, failed = sum(each.acknowledged for each in writers), sum(each.failed for each in writers)
    reads, not_read = sum(each.reads for each in readers), sum(each.failed for each in readers)
    assert acknowledged > _OPERATIONS and reads > 5 * _OPERATIONS
    assert crashes or failed == not_read == 0
    print(
        f"{acknowledged} acknowledged, {failed} failed; {reads} reads, {not_read} failed, "
        f"{sum(each.not_there for each in readers)} not there; {saboteur.crashes if saboteur else 0} crashes"
    )


@pytest.mark.evidence("open-file-replaced")
def test_reader_that_waits_for_datanodes_gets_the_file_that_is_there_when_they_come() -> None:
    """The coordinator starts before its datanodes. The file that existed first is gone when they arrive."""
    cluster = SimulatedCluster(seed=1)
    cluster.until_ready()
    client, reader = cluster.client("client"), cluster.client("client-reader")
    for path in ("/old", "/new"):
        cluster.world.run_task(cluster.start(client, "write", write(path, path.encode(), path)), limit_s=60.0)
    for datanode in cluster.datanodes:
        datanode.crash()
    cluster.coordinator.crash()
    cluster.coordinator.start()

    def patient_read() -> fx.Steps[bytes]:
        opened = yield from fx.call(Open("/old"), Opened, timeout_s=startup_hold_s)
        return (yield from read_opened(opened))

    reading = cluster.start(reader, "read", patient_read())
    replacing = change(Change("replace", "/new", "simulated", "replace", "/old"))
    cluster.world.run_task(cluster.start(client, "replace", replacing), limit_s=5.0)
    assert not cluster.world.run(lambda: reading.done, limit_s=freed_chunks_kept_s + 5.0)
    for datanode in cluster.datanodes:
        datanode.start()
    assert cluster.world.run_task(reading, limit_s=startup_hold_s) == b"/new"
