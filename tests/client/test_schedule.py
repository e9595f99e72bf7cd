"""The scheduling service on a real cluster: everyone is served, and grants of the dead are returned."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from peacefs.client.command_line.schedule import ScheduleStyle, show_schedule
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import BadRequest
from peacefs.protocol.limits import MIB

pytestmark = pytest.mark.cluster

WaitUntil = Callable[..., None]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Yield a cluster in which two chunks can be written at a time."""
    options = ["--streams-per-node=1"]
    with LocalCluster(tmp_path, datanodes=6, port=0, coordinator_options=options) as running:
        yield running


@pytest.fixture
def files(cluster: LocalCluster) -> Iterator[PeaceFileSystem]:
    with PeaceFileSystem(cluster.http_address) as opened:
        yield opened


def put_by_webhdfs(cluster: LocalCluster, path: str, data: bytes) -> None:
    url = f"{cluster.http_address}/webhdfs/v1{path}?op=CREATE&user.name=root&noredirect=true"
    request = urllib.request.Request(url, method="PUT")
    with urllib.request.urlopen(request) as answer:
        location = json.loads(answer.read())["Location"]
    with urllib.request.urlopen(urllib.request.Request(location, data=data, method="PUT")) as answer:
        assert answer.status == 201


def test_eight_writers_at_once_finish_and_leave_no_capacity_behind(
    cluster: LocalCluster, files: PeaceFileSystem, wait_until: WaitUntil
) -> None:
    data = {f"/w/{number}": os.urandom(5 * MIB + number) for number in range(8)}

    def write(number: int) -> None:
        path = f"/w/{number}"
        if number % 2:
            put_by_webhdfs(cluster, path, data[path])
        else:
            with files.open_for_writing(path, block_bytes=2 * MIB) as sink:
                sink.write(data[path])

    policies = ["paper", "random", "express"]
    with ThreadPoolExecutor(8) as pool:
        writing = [pool.submit(write, number) for number in range(8)]
        for policy in policies:
            assert files.change_policy(policy).policy == policy
        for each in writing:
            each.result(60)
    assert {path: files.read(path) for path in data} == data
    wait_until(lambda: files.schedule().grants_in_flight == 0, "all capacity is back")
    schedule = files.schedule()
    assert schedule.granted_total >= 8
    assert (schedule.chunks_waiting, schedule.datanodes) == (0, 6)


def test_capacity_of_killed_writers_heads_and_coordinators_comes_back(
    cluster: LocalCluster, files: PeaceFileSystem, wait_until: WaitUntil
) -> None:
    script = (
        "import sys; from peacefs.client.filesystem import PeaceFileSystem\n"
        "sink = PeaceFileSystem(sys.argv[1]).open_for_writing(sys.argv[2])\n"
        "sink.write(bytes(3 << 20)); sink.write(bytes(3 << 20)); print('writing', flush=True); input()"
    )

    def writer(path: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", script, cluster.http_address, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    dead, living = writer("/dead"), writer("/living")
    try:
        for each in (dead, living):
            assert each.stdout is not None
            assert each.stdout.readline() == b"writing\n"
        assert files.schedule().grants_in_flight == 2
        dead.send_signal(signal.SIGKILL)
        wait_until(lambda: files.schedule().grants_in_flight == 1, "the head says that its writer is gone")
        cluster.coordinator.kill()
        cluster.restart(cluster.coordinator)
        wait_until(lambda: files.schedule().grants_in_flight == 1, "its datanodes are back")
        (grant,) = files.schedule().grants
        assert grant.number == 0, "learned from its head"
        head = next(node for node in cluster.datanodes if node.readiness.node == grant.pipeline[0])
        head.kill()
        living.communicate(b"\n", timeout=180)
        assert living.returncode in (0, 1)
    finally:
        for each in (dead, living):
            each.kill()
            each.communicate()
    files.write("/after", bytes(4 * MIB))
    wait_until(lambda: files.schedule().grants_in_flight == 0, "all capacity is back")


def test_the_schedule_is_shown_and_a_policy_that_there_is_not_is_refused(
    cluster: LocalCluster, files: PeaceFileSystem, wait_until: WaitUntil, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = threading.Event()

    def write(number: int) -> None:
        with files.open_for_writing(f"/q/{number}") as sink:
            sink.write(bytes(3 * MIB))
            sink.write(bytes(2 * MIB))
            seen.wait(60)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    wait_until(lambda: files.schedule().chunks_waiting == 1, "two are written, one waits")
    show_schedule(cluster.http_address, ScheduleStyle(watch=False, as_json=False, policy=None))
    shown = capsys.readouterr().out
    assert "policy express" in shown
    assert "2 grants in flight" in shown
    assert "1 chunks of 1 sets wait" in shown
    seen.set()
    for thread in threads:
        thread.join()
    show_schedule(cluster.http_address, ScheduleStyle(watch=False, as_json=True, policy="random"))
    assert json.loads(capsys.readouterr().out)["policy"] == "random"
    with pytest.raises(BadRequest, match="there is no policy 'fair'; there are express"):
        files.change_policy("fair")
    files.write("/small", b"12345")
    schedule = files.schedule()
    assert (schedule.fast_lane_chunks_total, schedule.fast_lane_bytes_total) == (1, 5)
    metrics = urllib.request.urlopen(f"{cluster.http_address}/metrics").read().decode()
    assert "peacefs_grant_waited_seconds_count" in metrics
    assert "peacefs_fast_lane_bytes 5.0" in metrics
