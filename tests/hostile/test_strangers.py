"""Strangers at every port that a process of peacefs listens on, before they have proved who they are.

They send random bytes, announce long frames, send slowly or nothing, and connect in large numbers. Each process
survives and uses no more memory than before, other peers are served, and the connections end at a deadline. Seeds
are printed; PEACEFS_SEED replays one, PEACEFS_SEEDS=m-n plays more, PEACEFS_LONG=1 sends more and waits longer.
"""

from __future__ import annotations

import contextlib
import os
import random
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hostile.doors import Door, connect, doors_of, throw
from hostile.hostile_frames import announced as announced_frame
from hostile.hostile_frames import before_the_handshake
from hostile.listeners import local_sockets_of, ports_of
from hostile.watch import MEMORY_BYTES_MAX, Held, Watch
from simulation.seeds import seeds
from support import prepared_starts
from support.dataflows import SCHEMA
from support.long_runs import often
from support.waiting import PATIENCE_S, wait_until

from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.hosts import run_events
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints
from peacefs.dataflow.hosts.edge_run import RunOptions
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.recovery.technique import Technique
from peacefs.dataflow.techniques.peer_ring import PeerRing
from peacefs.dataflow.techniques.sguard import SGuard
from peacefs.runtime.admin_socket import find_socket

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

_TIMES = often(200, 3000)
_ONLY_LONG = pytest.mark.long("minutes of waiting")
_THREADS = 8
#: Latest time at which a port closes a connection: two handshake frames of two parts each, and delays of a busy
#: machine.
_DEADLINE_S = 40.0
#: HTTP waits longer for the first byte of a request.
_HTTP_DEADLINE_S = 120.0
_DRIP_S = 0.25


def play(seed: int, what: str, doors: list[Door], make: Any) -> None:
    """Send random bytes to ports, several at once; each time has its own seed, derived from the first."""
    print(f"{what}: seed {seed}")

    def each(number: int) -> None:
        rng = random.Random(f"{seed} {what} {number}")
        with contextlib.suppress(ConnectionError):
            throw(connect(rng.choice(doors)), make(rng), rng)

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(each, range(_TIMES)))


def wait_hung_up(slow: list[tuple[str, socket.socket, bytes]], within_s: float) -> None:
    """Send each its bytes, one now and then, until the other end closes. Fail for connections that stay open."""
    begun_s = time.monotonic()
    with selectors.DefaultSelector() as selector:
        left = {}
        for name, connection, data in slow:
            selector.register(connection, selectors.EVENT_READ)
            left[connection] = (name, list(data))
        while left and time.monotonic() < begun_s + within_s:
            until_s = time.monotonic() + _DRIP_S
            while (rest_s := until_s - time.monotonic()) > 0:
                for key, _ in selector.select(rest_s):
                    connection: Any = key.fileobj
                    with contextlib.suppress(OSError):
                        if connection.recv(1 << 16):
                            continue
                    selector.unregister(connection)
                    del left[connection]
                    connection.close()
                if not left:
                    break
            for connection, (_, data) in left.items():
                if data:
                    with contextlib.suppress(OSError):
                        connection.send(bytes((data.pop(0),)))
    assert not left, f"open after {within_s:g} s: {sorted(name for name, _ in left.values())}"


# -- services -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def service_doors(cluster: LocalCluster) -> list[Door]:
    doors = doors_of(cluster)
    administrators = find_socket(cluster.directory)
    return [*doors, Door("administrators", str(administrators), None, True, False, "coordinator", "coordinator")]


def test_doors_are_all_that_services_listen_on(cluster: LocalCluster, service_doors: list[Door]) -> None:
    """A new port must be attacked, too."""
    for member in (cluster.coordinator, cluster.datanodes[0]):
        known = {door.port for door in service_doors}
        assert ports_of(member.pid) <= known, member.name
        names = {name.lstrip("@") for name in local_sockets_of(member.pid)}
        known_names = {door.host for door in service_doors if door.port is None}
        assert {Path(name).name for name in names} <= {Path(name).name for name in known_names}, member.name


def test_slow_and_silent_strangers_are_hung_up_on_and_long_frames_cost_no_memory(
    cluster: LocalCluster, service_doors: list[Door]
) -> None:
    watch = Watch(cluster)
    before = {member.name: Held.by(member) for member in cluster.members}
    hello = before_the_handshake(random.Random(1))
    with contextlib.ExitStack() as opened:
        slow = []
        for door in service_doors:
            for data in (b"", b"pf" + hello[2:400]) if door.serves_frames else ():
                # If HTTP is served, too, a silent peer may be an HTTP client.
                if data or not door.serves_http:
                    slow.append((door.name, opened.enter_context(connect(door)), data))
            for _ in range(8 if door.serves_frames else 0):
                long = opened.enter_context(connect(door))
                with contextlib.suppress(OSError):
                    long.sendall(announced_frame(random.Random(3))[:20] + bytes(4 << 20))
        for member in cluster.members:
            grown = Held.by(member).memory_bytes - before[member.name].memory_bytes
            assert grown <= MEMORY_BYTES_MAX, f"{member.name} grew by {grown >> 20} MiB"
        wait_hung_up(slow, _DEADLINE_S)
    watch.check()


@_ONLY_LONG
def test_silent_strangers_of_http_are_hung_up_on(cluster: LocalCluster, service_doors: list[Door]) -> None:
    with contextlib.ExitStack() as opened:
        slow = [
            (door.name, opened.enter_context(connect(door)), data)
            for door in service_doors
            if door.serves_http
            for data in (b"", b"GET /" + b"x" * 5000)
        ]
        wait_hung_up(slow, _HTTP_DEADLINE_S)


@pytest.mark.parametrize("seed", seeds(1))
def test_hostile_bytes_at_the_administrators_socket_harm_nobody(
    cluster: LocalCluster, service_doors: list[Door], seed: int
) -> None:
    watch = Watch(cluster)
    play(seed, "bytes to administrators", service_doors[-1:], before_the_handshake)
    watch.check()


# -- dataflows ----------------------------------------------------------------------------------------------


def _doubled() -> Network:
    query = Query("first")
    stream = query.source("in", SCHEMA, time="at").filter(F.col("value") >= 0)
    stream.unit("second").with_columns(doubled=F.col("value") * 2).sink("out")
    return query.network()


def _counted() -> Network:
    def count(rows: pa.RecordBatch, state: Any) -> pa.RecordBatch:
        state.add_at(rows.column("key"), 1)
        return rows.append_column("doubled", pa.array([2 * value for value in rows.column("value").to_pylist()]))

    query = Query("ring")
    rows = query.source("in", SCHEMA, time="at")
    columns = pa.schema([*SCHEMA, ("doubled", pa.int64())])
    rows.process(count, columns, state={"key": "string", "count": "int64"}, key="key").sink("out")
    return query.network()


class Attacked:
    """A query that runs while strangers attack its ports."""

    def __init__(self, directory: Path, network: Network, technique: Technique) -> None:
        self._given = 0
        self._over = threading.Event()
        self._taken: list[int] = []
        self._lost: list[str] = []
        listened = ports_of(os.getpid())
        self._host = LocalProcesses(2, DirectoryCheckpoints(directory), node_timeout_s=PATIENCE_S)
        options = RunOptions(observer=self._observe)
        self.run = self._host.start(network, technique, {"in": self._feed()}, {"out": self._take}, options)
        wait_until(lambda: len(self._taken) > 8, "first rows")
        self._pids = dict(self._host.pids())
        self.doors = [self._door("edge", port) for port in ports_of(os.getpid()) - listened]
        assert len(self.doors) == 1, "the program that started the query listens on one port"
        for name, pid in self._pids.items():
            (port,) = ports_of(pid)
            self.doors.append(self._door(name, port))
        self._before = self._held()

    def wait_rows(self) -> None:
        """Wait for rows that the query was given after this call."""
        seen = len(self._taken)
        wait_until(lambda: len(self._taken) > seen + 8, "rows while strangers are there")

    def check_memory(self) -> None:
        for name, held in self._held().items():
            grown = held - self._before[name]
            assert grown <= MEMORY_BYTES_MAX, f"{name} grew by {grown >> 20} MiB"

    def end(self) -> None:
        """End the query, and compare its rows with arithmetic."""
        self._over.set()
        self.run.wait(PATIENCE_S)
        assert self._lost == []
        assert dict(self._host.pids()) == self._pids, "a node has died"
        assert sorted(self._taken) == [2 * value for value in range(self._given)]

    def _held(self) -> dict[str, int]:
        return {name: Held.of(pid).memory_bytes for name, pid in {**self._pids, "edge": os.getpid()}.items()}

    def _door(self, name: str, port: int) -> Door:
        return Door(name, "127.0.0.1", port, False, False, "node", name)

    def _feed(self) -> Iterator[pa.RecordBatch]:
        while not self._over.wait(0.02):
            values = range(self._given, self._given + 4)
            self._given += 4
            times = pa.array(values, pa.int64()).cast(SCHEMA.field("at").type)
            yield pa.record_batch([pa.array([*"abca"]), times, pa.array(values, pa.int64())], schema=SCHEMA)

    def _take(self, rows: pa.RecordBatch) -> None:
        self._taken += rows.column("doubled").to_pylist()

    def _observe(self, _: float, event: run_events.RunEvent) -> None:
        if isinstance(event, run_events.NodeLost):
            self._lost.append(event.node)


@pytest.fixture
def prepared_nodes() -> None:
    prepared_starts.begin("node")


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize(
    ("network", "technique"),
    [
        pytest.param(_doubled(), SGuard(interval_s=0.2), id="units"),
        pytest.param(_counted(), PeerRing(silence_s=100.0), id="ring", marks=_ONLY_LONG),
    ],
)
@pytest.mark.usefixtures("prepared_nodes")
def test_strangers_at_the_ports_of_a_dataflow_harm_nobody(
    tmp_path: Path, network: Network, technique: Technique, seed: int
) -> None:
    attacked = Attacked(tmp_path, network, technique)
    with attacked.run, contextlib.ExitStack() as opened:
        play(seed, "bytes to a dataflow", attacked.doors, before_the_handshake)
        slow = []
        for door in attacked.doors:
            for data in (b"", b"pf" + before_the_handshake(random.Random(1))[2:400]):
                slow.append((door.name, opened.enter_context(connect(door)), data))
            for _ in range(8):
                long = opened.enter_context(connect(door))
                with contextlib.suppress(OSError):
                    long.sendall(announced_frame(random.Random(3))[:20] + bytes(often(16, 80) << 20))
        attacked.check_memory()
        attacked.wait_rows()
        wait_hung_up(slow, _DEADLINE_S)
        # More than may be at their handshake.
        for door in attacked.doors:
            for _ in range(300):
                with contextlib.suppress(ConnectionError):
                    opened.enter_context(connect(door)).sendall(b"pf\x01")
        attacked.check_memory()
        attacked.wait_rows()
        attacked.end()
