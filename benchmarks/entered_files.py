"""Count the product's files that one request enters, as a measure of how far a reader has to follow it.

The services run as processes that record when each function is entered (`entering/sitecustomize.py`). A request is
repeated; a file counts if every repetition enters it, so background work does not count.
"""

from __future__ import annotations

import http.client
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from unittest import mock
from urllib.parse import urlsplit

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster

from .report import show

_DATA = os.urandom(1024)
_PAUSE_S = 0.13
#: Time for a request's background work, and for a heartbeat, which is slow here.
_AFTER_S, _HEARTBEAT_S = 0.02, 0.1
_BEATS = "datanode/control/coordinator_session.py:CoordinatorLink._keep_beating"
_HEARD = "coordinator/cluster/core.py:Cluster.heartbeat"
_PLAN = {"policy": "random", "requests": [{"chunks": 4, "replication": 2}]}

Window = tuple[float, float]


def main(*, quick: bool = False) -> None:
    repetitions = 8 if quick else 25
    with tempfile.TemporaryDirectory() as directory:
        recorded = Path(directory, "recorded")
        recorded.mkdir()
        recorder = str(Path(__file__).parent / "entering")
        variables = {"PYTHONPATH": recorder, "PEACEFS_ENTERED_DIRECTORY": str(recorded)}
        cluster = LocalCluster(Path(directory, "cluster"), 3, port=0)
        with mock.patch.dict(os.environ, variables), cluster:
            windows = {name: _repeat(request, repetitions) for name, request in _requests(cluster).items()}
            idle = _repeat(lambda _: time.sleep(1.5), 3)
        times = _times(recorded)
    # In a request of one second, regular background work such as heartbeats also counts.
    windows["nothing, for a second and a half"] = idle
    windows["a heartbeat"] = [(begun, begun + _HEARTBEAT_S) for begun in times[_HEARD]][-repetitions:]
    rows = []
    for name, asked in windows.items():
        files = sorted(_entered_each_time(times, asked))
        packages = Counter(file.split("/")[0] for file in files)
        rows.append({"request": name, "files": len(files), **{each: packages[each] for each in _packages(times)}})
        print(f"-- {name}:", *files, sep="\n   ")
    show("entered_files", f"files of the services that are entered, each of {repetitions} times", rows)


def _requests(cluster: LocalCluster) -> dict[str, Callable[[int], None]]:
    """Return for each row of the table, by name, a function that makes the request of one repetition."""
    base = f"http://{cluster.http_address.removeprefix('http://')}/webhdfs/v1"
    files = PeaceFileSystem(cluster.http_address, "root")
    files.write("/read", _DATA)

    def create(number: int) -> None:
        _follow("PUT", f"{base}/http/{number}?op=CREATE&user.name=root", _DATA)

    return {
        "mkdir, frames": lambda number: files.mkdirs(f"/directories/{number}"),
        "CREATE of 1 KiB, WebHDFS": create,
        "CREATE of 1 KiB, frames, one of a series": lambda number: files.write(f"/frames/{number}", _DATA),
        "CREATE of 1 KiB, frames, asked for first": lambda number: _write_alone(cluster, number),
        "OPEN of 1 KiB, WebHDFS": lambda _: _follow("GET", f"{base}/read?op=OPEN&user.name=root"),
        "open and read 1 KiB, frames": lambda _: _check(files.read("/read") == _DATA),
        "a dry run, /v1/plan": lambda _: _plan(cluster),
    }


def _write_alone(cluster: LocalCluster, number: int) -> None:
    with PeaceFileSystem(cluster.http_address, "root") as files:
        files.write(f"/alone/{number}", _DATA)


def _plan(cluster: LocalCluster) -> None:
    _check(_ask("POST", f"{cluster.http_address}/v1/plan", json.dumps(_PLAN).encode())[0] == 200)


def _follow(method: str, url: str, body: bytes | None = None) -> None:
    """Create a file as Hadoop's client does: send the body to the address in the redirect."""
    status, location = _ask(method, url)
    _check(status == 307)
    status, _ = _ask(method, location, body)
    _check(status in (200, 201))


def _ask(method: str, url: str, body: bytes | None = None) -> tuple[int, str]:
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.netloc, timeout=60)
    headers = {"Content-Type": "application/json" if "/v1/plan" in url else "application/octet-stream"}
    connection.request(method, f"{address.path}?{address.query}", body, headers)
    response = connection.getresponse()
    response.read()
    connection.close()
    return response.status, response.headers.get("location", "")


def _check(holds: bool) -> None:
    if not holds:
        raise SystemExit("a request was not answered as it should be")


def _repeat(request: Callable[[int], None], repetitions: int) -> list[Window]:
    request(-1)
    windows = []
    for number in range(repetitions):
        time.sleep(_PAUSE_S)
        begun = time.monotonic()
        request(number)
        windows.append((begun, time.monotonic() + _AFTER_S))
    return windows


def _times(recorded: Path) -> dict[str, list[float]]:
    """Return when each function was entered, in any process."""
    times: dict[str, list[float]] = {}
    for file in recorded.iterdir():
        content = json.loads(file.read_text())
        for name, ticks in content["times"].items():
            times.setdefault(name, []).extend(tick / content["ticks_per_s"] for tick in ticks)
    return {name: sorted(found) for name, found in times.items()}


def _entered_each_time(times: dict[str, list[float]], windows: Iterable[Window]) -> set[str]:
    windows = list(windows)
    by_file: dict[str, list[float]] = {}
    for name, found in times.items():
        by_file.setdefault(name.split(":")[0], []).extend(found)
    return {file for file, found in by_file.items() if all(any(a <= at <= b for at in found) for a, b in windows)}


def _packages(times: dict[str, list[float]]) -> list[str]:
    return sorted({name.split("/")[0] for name in times})
