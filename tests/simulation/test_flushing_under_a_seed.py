"""Writers that flush, while coordinator and datanodes crash and messages are lost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest
from simulation.client_steps import append, flusher, read
from simulation.saboteur import Saboteur
from simulation.seeds import seeds
from simulation.simulated_cluster import SimulatedCluster

from peacefs.coordinator.operations.leases import lease_s
from peacefs.protocol.errors import FileNotFound, LeaseExpired, PeacefsError, PeerError, ServiceUnready
from peacefs.runtime import effects as fx


def patiently(steps: fx.Steps[Any]) -> fx.Steps[Any]:
    """Repeat a request that the coordinator did not answer, as the client's HTTP code does."""
    step: Callable[[], Any] = partial(next, steps)
    tries = 0
    while True:
        try:
            effect = step()
        except StopIteration as stop:
            return stop.value
        while True:
            try:
                result = yield effect
            except (PeerError, ServiceUnready) as fault:
                if isinstance(effect, fx.Call) and tries < 50:
                    tries += 1
                    yield from fx.sleep(1.0)
                    continue
                step = partial(steps.throw, fault)
            except PeacefsError as fault:
                step = partial(steps.throw, fault)
            else:
                step = partial(steps.send, result)
            break


class Log:
    """The records that a writer has flushed, and the record that it is flushing."""

    def __init__(self) -> None:
        self.acknowledged = b""
        self.tried = b""

    def check(self, content: bytes, at_least: bytes) -> None:
        assert content.startswith(at_least), "what was acknowledged is not there"
        assert self.tried.startswith(content), "what is there was never written, or not in this order"


def writer(log: Log, random: Random, records: int) -> fx.Steps[None]:
    sink = yield from flusher("/log", "log", "writer")
    for number in range(records):
        record = f"<{number}>".encode() * random.choice((1, 10, 1000, 60_000))
        log.tried += record
        yield from sink.flush(record)
        log.acknowledged = log.tried
        yield from fx.sleep(random.uniform(0.0, 0.5))
    log.tried += b"end"
    yield from sink.complete(b"end")
    log.acknowledged = log.tried


def follower(log: Log, done: list[bool]) -> fx.Steps[int]:
    """Open and read the file again and again; return how often that succeeded."""
    seen = 0
    while not done:
        before = log.acknowledged
        try:
            content = yield from read("/log")
        except FileNotFound:
            assert not before
        except PeacefsError:
            pass
        else:
            log.check(content, before)
            seen += 1
        yield from fx.sleep(0.8)
    return seen


@pytest.mark.parametrize("seed", seeds(6))
def test_flushed_bytes_are_read_in_order_and_never_lost(seed: int) -> None:
    print(f"seed {seed}")
    random = Random(seed)
    cluster = SimulatedCluster(seed, lose=0.003)
    cluster.until_ready()
    saboteur = Saboteur(cluster, Random(seed), effects_between=600)
    log = Log()
    done: list[bool] = []
    reading = cluster.start(cluster.client("client-reader"), "reader", follower(log, done))
    writing = cluster.start(cluster.client("client-writer"), "writer", patiently(writer(log, random, 40)))
    try:
        cluster.world.run_task(writing, limit_s=4000.0)
    except PeacefsError as fault:
        print(f"the writer gave up: {fault}")
    done.append(True)
    seen = cluster.world.run_task(reading, limit_s=400.0)
    saboteur.rest()
    cluster.world.network.lose = 0.0
    assert cluster.world.run(lambda: all(node.up for node in cluster.world.nodes.values()), limit_s=60.0)
    cluster.until_ready()
    content = cluster.world.run_task(
        cluster.start(cluster.client("client-3"), "read", read("/log")), limit_s=100.0
    )
    log.check(content, log.acknowledged)
    assert saboteur.crashes >= 1
    assert log.acknowledged and seen
    chunks = len(cluster.coordinator.metadata.reader().chunks(0, 1000))
    print(f"{len(content)} bytes in {chunks} chunks, read {seen} times, {saboteur.crashes} crashes")


@pytest.mark.parametrize("seed", seeds(3))
def test_a_writer_that_dies_leaves_what_it_flushed_and_the_next_goes_on_after_its_lease(seed: int) -> None:
    print(f"seed {seed}")
    cluster = SimulatedCluster(seed)
    cluster.until_ready()
    log = Log()
    dying, heir = cluster.client("client-dying"), cluster.client("client-heir")
    cluster.start(dying, "writer", writer(log, Random(seed), 1000))
    cluster.world.run(lambda: len(log.acknowledged) > 100 * (seed % 7 + 1), limit_s=400.0)
    cluster.world.crash(dying)
    content = cluster.world.run_task(cluster.start(heir, "read", read("/log")), limit_s=60.0)
    log.check(content, log.acknowledged)
    with pytest.raises(PeacefsError, match="currently owned by writer"):
        cluster.world.run_task(cluster.start(heir, "append", append("/log", b"no", "heir")), limit_s=60.0)
    cluster.world.run(lambda: False, limit_s=lease_s)
    cluster.world.run_task(cluster.start(heir, "append", append("/log", b"heir", "heir")), limit_s=60.0)
    assert cluster.world.run_task(cluster.start(heir, "read", read("/log")), limit_s=60.0) == content + b"heir"


def test_a_writer_that_was_away_too_long_is_refused_when_it_comes_back() -> None:
    cluster = SimulatedCluster(seed=3)
    cluster.until_ready()
    away, other = cluster.client("client-away"), cluster.client("client-other")

    def story() -> fx.Steps[str]:
        sink = yield from flusher("/log", "log", "away")
        yield from sink.flush(b"1")
        yield from fx.sleep(3 * lease_s)
        try:
            yield from sink.flush(b"lost")
        except LeaseExpired as refusal:
            return refusal.message
        return "it was let in"

    waiting = cluster.start(away, "away", story())
    cluster.world.run(lambda: False, limit_s=2 * lease_s)
    cluster.world.run_task(cluster.start(other, "append", append("/log", b"2", "other")), limit_s=60.0)
    said = cluster.world.run_task(waiting, limit_s=1000.0)
    assert "Client (=away) is not the lease owner any more" in said
    assert cluster.world.run_task(cluster.start(other, "read", read("/log")), limit_s=60.0) == b"12"
