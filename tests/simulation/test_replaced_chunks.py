"""Flushed small chunks are rewritten as larger ones; the old chunks go when nobody can read them any more."""

from __future__ import annotations

import pytest
from simulation.client_steps import flusher, open_file, read, read_opened
from simulation.simulated_cluster import SimulatedCluster
from simulation.terms import LOOK_S
from support.long_runs import often

from peacefs.runtime import effects as fx

_FIRST = b"first" * 1000
_SECOND = b"second" * 1000
#: An hour by default, most of which tests nothing.
_RENEWABLE_S = 60.0 * often(10, 60)


@pytest.fixture(autouse=True)
def _renewable(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("cluster.deferred_deletes", "operations.append", "operations.read"):
        monkeypatch.setattr(f"peacefs.coordinator.{module}.read_token_renewable_s", _RENEWABLE_S)


def chunks(cluster: SimulatedCluster) -> set[int]:
    """Return the chunks that files refer to."""
    return {record.chunk for record in cluster.coordinator.metadata.reader().chunks(0, 1000)}


def holders(cluster: SimulatedCluster, chunk: int) -> int:
    return sum(datanode.store.find(chunk) is not None for datanode in cluster.datanodes)


def flush_twice(cluster: SimulatedCluster, opened: list[object]) -> fx.Steps[None]:
    """Flush twice, and open the file in between."""
    sink = yield from flusher("/log", "log", "writer")
    yield from sink.flush(_FIRST)
    opened += [(yield from open_file("/log")), chunks(cluster)]
    yield from sink.flush(_SECOND)
    yield from sink.complete(b"")


@pytest.mark.parametrize("crashes", [False, True], ids=["coordinator stays", "coordinator restarts"])
def test_replaced_chunks_are_dropped_after_the_last_reader_and_not_before(crashes: bool) -> None:
    cluster = SimulatedCluster(seed=1, datanodes=2)
    cluster.until_ready()
    world, coordinator = cluster.world, cluster.coordinator
    client, noted = cluster.client("client"), list[object]()
    world.run_task(cluster.start(client, "write", flush_twice(cluster, noted)), limit_s=60.0)
    opened, before = noted
    assert isinstance(before, set)
    (replaced,) = before - chunks(cluster)
    began_s = world.now_s
    if crashes:
        coordinator.crash()
        coordinator.start()
        cluster.until_ready()
    else:
        world.run(lambda: False, limit_s=_RENEWABLE_S / 2)
        reading = cluster.start(client, "read", read_opened(opened))  # type: ignore[arg-type]
        assert world.run_task(reading, limit_s=60.0) == _FIRST, "it goes on by the layout that it has"
    world.run(lambda: False, limit_s=began_s + _RENEWABLE_S - 60.0 - world.now_s)
    assert holders(cluster, replaced) == 2
    # A restarted coordinator has forgotten them; its floor, which lags by some minutes, lets them go.
    assert world.run(lambda: holders(cluster, replaced) == 0, limit_s=600.0, look_s=LOOK_S)
    assert world.run_task(cluster.start(client, "read", read("/log")), limit_s=60.0) == _FIRST + _SECOND
