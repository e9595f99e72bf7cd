"""Idle connections are closed, by number and by time, even if nobody uses the pool any more."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from peacefs.protocol.handshake import Identity
from peacefs.runtime import idle_reaper
from peacefs.runtime.connection_pool import ConnectionPool
from peacefs.runtime.idle_reaper import IdleReaper


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def address(make_cluster):
    return make_cluster().nodes[0].server.address


@pytest.fixture
def make_pool() -> Iterator:
    made = []

    def make(**options) -> ConnectionPool:
        made.append(ConnectionPool(Identity("test-cluster", "client", "test", None), **options))
        return made[-1]

    yield make
    for pool in made:
        pool.close_all()


def waiting_threads() -> int:
    return sum(thread.name == "idle connections" for thread in threading.enumerate())


def test_idle_connections_are_closed_in_time_and_nothing_is_left_running(make_pool, address, until):
    before = waiting_threads()
    pool = make_pool(idle_s_max=0.8)
    connections = [pool.connect(address, "n0") for _ in range(3)]
    for connection in connections:
        pool.release(connection)
    assert pool.idle == 3
    until(lambda: pool.idle == 0, "they are let go of")
    until(lambda: all(connection.is_closed for connection in connections), "they are closed")
    until(lambda: waiting_threads() == before, "nobody waits any more")
    pool.release(pool.connect(address, "n0"))
    until(lambda: pool.idle == 0, "the next one is let go of too")


def test_connection_in_constant_use_needs_one_thread_to_watch_it(monkeypatch):
    """The reaper's thread checks while nothing is idle, and the next use finds it still running."""
    started = []
    start = threading.Thread.start

    def counted(thread: threading.Thread) -> None:
        if thread.name == "idle connections":
            started.append(thread)
        start(thread)

    looked = threading.Event()

    def reap(_now_s: float) -> None:
        looked.set()

    monkeypatch.setattr(threading.Thread, "start", counted)
    monkeypatch.setattr(idle_reaper, "reaper_pause_s", 60.0)
    reaper = IdleReaper(reap, "idle connections")
    try:
        reaper.watch()
        assert looked.wait(60)
        # A thread that ends after one check does so now. A staying one does not check again in this time.
        started[0].join(0.5)
        reaper.watch()
    finally:
        reaper.stop()
    assert len(started) == 1 and not started[0].is_alive()


def test_one_that_was_of_use_meanwhile_stays_longer(make_pool, address, clock):
    pool = make_pool(clock=clock, idle_s_max=60.0)
    kept, other = pool.connect(address, "n0"), pool.connect(address, "n0")
    pool.release(other)
    pool.release(kept)
    clock.now_s += 50.0
    assert pool.connect(address, "n0") is kept
    pool.release(kept)
    clock.now_s += 20.0
    assert pool.reap(clock.now_s) == clock.now_s + 40.0
    assert (pool.idle, other.is_closed, kept.is_closed) == (1, True, False)
    assert pool.connect(address, "n0") is kept
    pool.close(kept)


def test_pooled_connection_to_one_peer_is_not_given_for_another_at_its_address(make_pool, address):
    """The handshake was with one peer; another peer at the address has not proved its identity."""
    pool = make_pool()
    connection = pool.connect(address, "n0")
    pool.release(connection)
    assert pool.kept(address, "n1") is None
    assert pool.kept(address, "n0") is connection
    pool.close(connection)


def test_pooled_connections_over_the_limit_close_the_longest_idle(make_pool, make_cluster, clock):
    addresses = [node.server.address for node in make_cluster().nodes[:2]]
    pool = make_pool(clock=clock, idle_max=2)
    opened = [pool.connect(addresses[number % 2], f"n{number % 2}") for number in range(4)]
    for connection in opened:
        pool.release(connection)
        clock.now_s += 1.0
    assert [connection.is_closed for connection in opened] == [True, True, False, False]
    assert pool.idle == 2


def test_a_pool_that_was_closed_keeps_nothing(make_pool, address):
    before = waiting_threads()
    pool = make_pool()
    used, idle = pool.connect(address, "n0"), pool.connect(address, "n0")
    pool.release(idle)
    pool.close_all()
    pool.release(used)
    assert used.is_closed and idle.is_closed
    assert (pool.idle, waiting_threads()) == (0, before)
