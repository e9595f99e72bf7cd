"""Strangers at the coordinator's port for clients of HDFS. Seeds are printed; PEACEFS_SEED plays one again."""

from __future__ import annotations

import contextlib
import random
import time

import pytest
from hostile.doors import Door, connect, doors_of
from hostile.hostile_hdfs import before_a_call, calls
from hostile.test_strangers import _DEADLINE_S, play, wait_hung_up
from hostile.watch import MEMORY_BYTES_MAX, Held, Watch
from simulation.seeds import seeds
from support.hadoop_rpc import GREETING, HadoopRpc, context

from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.hadoop import namenode_pb2 as pb

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def door(cluster: LocalCluster) -> Door:
    [found] = [each for each in doors_of(cluster) if each.name == "coordinator HDFS"]
    return found


def serves(door: Door) -> None:
    """Check that an honest client is served within a moment."""
    assert door.port is not None
    begun_s = time.monotonic()
    with HadoopRpc(door.host, door.port, "ann") as rpc:
        answer = rpc.call("getFileInfo", pb.GetFileInfoRequestProto(src="/"), pb.GetFileInfoResponseProto)
    assert answer.fs.group == "supergroup"
    assert time.monotonic() - begun_s < _DEADLINE_S


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("make", [before_a_call, calls])
def test_hostile_bytes_at_the_port_for_hdfs_harm_nobody(
    cluster: LocalCluster, door: Door, seed: int, make: object
) -> None:
    watch = Watch(cluster)
    play(seed, f"bytes to HDFS's port, {getattr(make, '__name__', '')}", [door], make)
    serves(door)
    watch.check()


def test_slow_strangers_of_hdfs_are_hung_up_on_and_long_requests_cost_no_memory(
    cluster: LocalCluster, door: Door
) -> None:
    watch = Watch(cluster)
    before = Held.by(cluster.coordinator)
    with contextlib.ExitStack() as opened:
        slow = [
            (f"{number}", opened.enter_context(connect(door)), data)
            for number, data in enumerate(
                (b"", GREETING + context("ann")[:-1], b"hrpc", GREETING + b"\0\0\x0f\xff")
            )
        ]
        for _ in range(64):
            long = opened.enter_context(connect(door))
            with contextlib.suppress(OSError):
                long.sendall(GREETING + context("ann") + (2 << 20).to_bytes(4, "big") + bytes((2 << 20) - 1))
        serves(door)
        grown = Held.by(cluster.coordinator).memory_bytes - before.memory_bytes
        assert grown <= 2 * MEMORY_BYTES_MAX, f"the coordinator grew by {grown >> 20} MiB"
        wait_hung_up(slow, _DEADLINE_S)
    watch.check()


def test_crowd_of_silent_strangers_leaves_room_for_others(cluster: LocalCluster, door: Door) -> None:
    watch = Watch(cluster)
    with contextlib.ExitStack() as opened:
        for _ in range(600):
            with contextlib.suppress(OSError):
                opened.enter_context(connect(door)).sendall(b"hrpc")
        serves(door)
    watch.check()


def test_client_that_sends_and_never_reads_is_bounded(cluster: LocalCluster, door: Door) -> None:
    """It is not served further while its calls are under way, and is cut off when its answers pile up."""
    watch = Watch(cluster)
    rng = random.Random(1)
    with connect(door) as connection:
        connection.settimeout(2.0)
        with contextlib.suppress(OSError):
            for _ in range(40):
                connection.sendall(calls(rng))
        serves(door)
    watch.check()
