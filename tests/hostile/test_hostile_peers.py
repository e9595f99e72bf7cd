"""Arbitrary data before and after a handshake: every service survives, answers, and leaks nothing.

A seed is printed on failure; PEACEFS_SEED plays it again, PEACEFS_SEEDS=m-n plays more (`simulation/seeds.py`).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from hostile.doors import Door, connect, doors_of, shake_hands, throw
from hostile.hostile_frames import after_the_handshake, before_the_handshake
from hostile.hostile_requests import request
from hostile.watch import Watch
from simulation.seeds import seeds
from support.long_runs import often

from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.tokens import Signer
from peacefs.runtime.secret import read_secrets

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
_TIMES = often(300, 1000)
_THREADS = 8
_DOORS = ("coordinator HTTP", "coordinator nodes", "datanode HTTP", "datanode data", "datanode local socket")


def play(seed: int, what: str, times: int, each: Callable[[random.Random], object]) -> None:
    """Attack many times, several at once; each time has its own seed, derived from the first."""
    print(f"{what}: seed {seed}")
    with ThreadPoolExecutor(_THREADS) as pool:
        for _ in pool.map(lambda number: each(random.Random(f"{seed} {what} {number}")), range(times)):
            pass


def door_of(cluster: LocalCluster, name: str) -> Door:
    return next(door for door in doors_of(cluster) if door.name == name)


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("name", _DOORS)
def test_hostile_bytes_before_the_handshake_harm_no_service(cluster: LocalCluster, name: str, seed: int) -> None:
    watch, door = Watch(cluster), door_of(cluster, name)
    play(seed, f"bytes to {name}", _TIMES, lambda rng: throw(connect(door), before_the_handshake(rng), rng))
    watch.check()


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("name", ["coordinator HTTP", "datanode data", "datanode local socket"])
def test_hostile_client_after_its_handshake_harms_no_service(cluster: LocalCluster, name: str, seed: int) -> None:
    watch, door = Watch(cluster), door_of(cluster, name)
    admitted: list[bool] = []

    def each(rng: random.Random) -> None:
        connection = connect(door)
        as_agreed = shake_hands(connection, door, "client", None)
        admitted.append(as_agreed is not None)
        throw(connection, after_the_handshake(rng), rng)

    play(seed, f"client at {name}", _TIMES, each)
    assert all(admitted), "the handshake is not the one that clients have"
    watch.check()


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("name", ["coordinator nodes", "datanode data"])
def test_hostile_service_that_knows_the_secret_crashes_no_service(
    cluster: LocalCluster, name: str, seed: int
) -> None:
    """It is trusted, but nonsense from it must do no more than end its connection."""
    watch, door = Watch(cluster), door_of(cluster, name)
    signer = Signer(*read_secrets(cluster.directory / "coordinator" / "cluster.secret"))
    admitted: list[bool] = []

    def each(rng: random.Random) -> None:
        connection = connect(door)
        as_agreed = shake_hands(connection, door, rng.choice(("datanode", "agent")), signer)
        admitted.append(as_agreed is not None)
        data = after_the_handshake(rng)
        # Sometimes send data sealed without the secret.
        throw(connection, as_agreed(data) if as_agreed is not None and rng.random() < 0.8 else data, rng)

    play(seed, f"service at {name}", _TIMES, each)
    assert all(admitted), "the handshake is not the one that services have"
    watch.check()


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("name", ["coordinator HTTP", "datanode HTTP"])
def test_hostile_requests_harm_no_service(cluster: LocalCluster, name: str, seed: int) -> None:
    watch, door = Watch(cluster), door_of(cluster, name)
    described = json.loads(httpx.get(f"{cluster.http_address}/v1/openapi.json").content)
    here = f"{door.host}:{door.port}"
    answers: list[bytes] = []
    play(
        seed,
        f"requests to {name}",
        2 * _TIMES,
        lambda rng: answers.append(throw(connect(door), request(rng, here, described), rng)),
    )
    statuses = {int(answer[9:12]) for answer in answers if answer.startswith(b"HTTP/1.1 ")}
    assert {200, 400, 403} <= statuses or name == "datanode HTTP"
    assert 500 not in statuses
    assert not [answer for answer in answers if b"access-control-allow" in answer.lower()]
    watch.check()
