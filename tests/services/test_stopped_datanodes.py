"""Datanodes are stopped by SIGTERM without maintenance, as systemd and Kubernetes do: no request fails."""

from __future__ import annotations

import os
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest
from support.local_members import is_gone
from support.long_runs import often
from support.waiting import wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.limits import MIB

pytestmark = pytest.mark.cluster
_SIZES = (1_000, 300_000, 3 * MIB)
_TASK_S = 4.0
#: Pause between two rounds.
_PAUSE_S = often(1, 0) * 0.05


class Rounds:
    """A thread that repeats an action until it is stopped or fails."""

    def __init__(self, once: Callable[[int], None]) -> None:
        self.done = 0
        self.fault: BaseException | None = None
        self._once = once
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._once(self.done)
                self.done += 1
                self._stop.wait(_PAUSE_S)
        except BaseException as fault:
            self.fault = fault

    @contextmanager
    def going(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()

    def look(self) -> None:
        if self.fault is not None:
            raise self.fault

    def wait_for(self, more: int) -> None:
        wanted = self.done + more
        wait_until(lambda: self.done >= wanted or self.fault is not None, f"{more} more rounds")
        self.look()


def restart_each(cluster: LocalCluster, rounds: list[Rounds]) -> None:
    """Restart one datanode after the other, each while everything is replicated and clients are working."""
    with PeaceFileSystem(cluster.http_address) as files:

        def is_replicated() -> bool:
            status = files.cluster_status()
            return not status["chunks"]["under_replicated"] and all(
                each["state"] == "alive" for each in status["datanodes"]
            )

        for datanode in cluster.datanodes:
            for each in rounds:
                each.wait_for(2)
            datanode.terminate()
            wait_until(partial(is_gone, datanode), "it has stopped")
            for each in rounds:
                each.wait_for(2)
            cluster.restart(datanode)
            wait_until(is_replicated, "all is replicated again")


def test_stopped_datanode_fails_no_request_of_our_client(tmp_path: Path) -> None:
    contents = {size: os.urandom(size) for size in _SIZES}
    with (
        LocalCluster(tmp_path, datanodes=4, port=0) as cluster,
        PeaceFileSystem(cluster.http_address) as files,
    ):

        def write_and_read(number: int) -> None:
            for size, data in contents.items():
                path = f"/ours/{number % 7}-{size}"
                files.write(path, data, replication=3, overwrite=True)
                assert files.read(path) == data

        rounds = Rounds(write_and_read)
        with rounds.going():
            restart_each(cluster, [rounds])
        rounds.look()


def test_stopped_datanode_fails_no_request_over_webhdfs(tmp_path: Path) -> None:
    """This client retries nothing, so a stopping datanode must still answer requests sent to it."""
    contents = {size: os.urandom(size) for size in _SIZES}
    answers: Counter[int] = Counter()
    with LocalCluster(tmp_path, datanodes=4, port=0) as cluster, httpx.Client(timeout=180) as http:

        def write_and_read(number: int) -> None:
            for size, data in contents.items():
                url = f"{cluster.http_address}/webhdfs/v1/theirs/{number % 7}-{size}"
                led = http.put(url, params={"op": "CREATE", "overwrite": "true", "user.name": "ann"})
                answers[http.put(led.headers["location"], content=data).status_code] += 1
                led = http.get(url, params={"op": "OPEN", "user.name": "ann"})
                assert http.get(led.headers["location"]).content == data

        rounds = Rounds(write_and_read)
        with rounds.going():
            restart_each(cluster, [rounds])
        rounds.look()
    assert set(answers) == {201}


def test_body_under_way_ends_at_a_datanode_that_is_being_stopped(tmp_path: Path) -> None:
    """Spark sends a state delta for as long as its task takes."""
    more, last = threading.Event(), threading.Event()

    def body() -> Iterator[bytes]:
        yield b"first "
        more.set()
        assert last.wait(180)
        yield b"last"

    with LocalCluster(tmp_path, datanodes=4, port=0) as cluster, httpx.Client(timeout=180) as http:
        url = f"{cluster.http_address}/webhdfs/v1/delta"
        led = http.put(url, params={"op": "CREATE", "user.name": "ann"}).headers["location"]
        head = next(each for each in cluster.datanodes if httpx.URL(led).port == each.readiness.http_port)
        answers: list[httpx.Response] = []
        sender = threading.Thread(target=lambda: answers.append(http.put(led, content=body())))
        sender.start()
        assert more.wait(180)
        head.terminate()
        wait_until(lambda: not takes_connections(httpx.URL(led)), "the datanode takes nobody any more")
        # The servers of many HTTP libraries would give up after three seconds.
        last.wait(_TASK_S)
        last.set()
        sender.join()
        assert [answer.status_code for answer in answers] == [201]
        wait_until(partial(is_gone, head), "it has stopped")
        assert http.get(url, params={"op": "OPEN"}, follow_redirects=True).content == b"first last"


def test_connection_of_java_ends_with_its_answer_lest_it_send_a_body_where_nobody_is(
    tmp_path: Path,
) -> None:
    with LocalCluster(tmp_path, datanodes=1, port=0) as cluster, httpx.Client(timeout=180) as http:
        for agent, expected in (("Java/17.0.12", "close"), ("curl/8.5.0", None)):
            url = f"{cluster.http_address}/webhdfs/v1/of {agent.partition('/')[0]}"
            led = http.put(url, params={"op": "CREATE"}).headers["location"]
            assert http.put(led, content=b"x", headers={"user-agent": agent}).headers.get("connection") == expected
            led = http.get(url, params={"op": "OPEN"}).headers["location"]
            assert http.get(led, headers={"user-agent": agent}).headers.get("connection") == expected


def takes_connections(url: httpx.URL) -> bool:
    try:
        socket.create_connection((url.host, url.port or 80), timeout=180).close()
    except ConnectionRefusedError:
        return False
    return True
