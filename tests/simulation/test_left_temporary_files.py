"""Temporary files of dead writers are deleted automatically, in a cluster that runs for hours and restarts."""

from __future__ import annotations

import pytest
from simulation.client_steps import flusher, list_names, write
from simulation.simulated_cluster import SimulatedCluster

from peacefs.coordinator.background import tasks
from peacefs.coordinator.operations import temporary_files
from peacefs.runtime import effects as fx

#: The command accepts an hour at least. A shorter life of the cluster takes less time to simulate.
_AGE_S = 300.0
_LOOK_S = 300.0


def keep_writing(path: str) -> fx.Steps[None]:
    """Flush a file for ever without renaming it, as a slow writer does."""
    sink = yield from flusher(path, "slow", "slow")
    while True:
        yield from sink.flush(b"more")
        yield from fx.sleep(100.0)


def test_temporary_file_goes_when_its_writer_left_it_and_stays_while_it_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tasks, "temporary_look_interval_s", _LOOK_S)
    monkeypatch.setattr(temporary_files, "temporary_watched_s", 2 * _LOOK_S)
    cluster = SimulatedCluster(seed=1, datanodes=1, collect_temporary_hours=_AGE_S / 3600)
    cluster.until_ready()
    world, client = cluster.world, cluster.client("client")
    world.run_task(cluster.start(client, "leave", write("/d/left._COPYING_", b"half", "left")), limit_s=60.0)
    cluster.start(cluster.client("client-slow"), "slow", keep_writing("/d/slow._COPYING_"))
    world.run(lambda: False, limit_s=_AGE_S / 2)
    cluster.coordinator.crash()
    cluster.coordinator.start()
    cluster.until_ready()

    def names() -> list[str]:
        found = world.run_task(cluster.start(client, "list", list_names("/d")), limit_s=60.0)
        return sorted(found.files)

    assert names() == ["left._COPYING_", "slow._COPYING_"]
    world.run(lambda: False, limit_s=_LOOK_S + 10.0)
    assert "left._COPYING_" in names(), "the coordinator has not watched it for long enough"
    world.run(lambda: False, limit_s=3 * _LOOK_S)
    assert names() == ["slow._COPYING_"]
