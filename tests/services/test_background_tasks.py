"""Background tasks run however many requests wait; if one fails, the coordinator stops."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.waiting import PATIENCE_S

pytestmark = pytest.mark.cluster

#: A coordinator that is overloaded by one request.
_CROWDED = """
import functools, pathlib, sys
from peacefs.coordinator import process, service
from peacefs.coordinator.metadata.group_commit import GroupCommit
from peacefs.coordinator.options import CoordinatorOptions

service.GroupCommit = functools.partial(GroupCommit, queue_max=0)
directory, ready_fd = pathlib.Path(sys.argv[1]), int(sys.argv[2])
process.run(
    CoordinatorOptions(directory, port=0, node_port=0, ready_fd=ready_fd, trash_minutes=1)
)
"""

#: A coordinator that cannot read the list of chunks.
_FORGETFUL = """
import pathlib, sys
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator import process
from peacefs.coordinator.options import CoordinatorOptions

def chunk_page(reader, after, limit):
    raise OSError("the page is gone")

namespace.chunk_page = chunk_page
process.run(CoordinatorOptions(pathlib.Path(sys.argv[1]), port=0, node_port=0))
"""


@pytest.fixture
def crowded(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Yield its process, and its HTTP address."""
    ready, theirs = os.pipe()
    log = tmp_path / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _CROWDED, str(tmp_path / "data"), str(theirs)],
            stderr=output,
            pass_fds=[theirs],
        )
    os.close(theirs)
    try:
        with os.fdopen(ready) as pipe:
            said: dict[str, Any] = json.loads(pipe.readline() or "{}")
        assert said, log.read_text()
        yield process, f"http://127.0.0.1:{said['http_port']}"
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0, log.read_text()


def value(address: str, name: str) -> float:
    with urllib.request.urlopen(f"{address}/metrics", timeout=180) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


@pytest.mark.evidence("everything-is-bounded")
def test_background_tasks_go_on_while_the_coordinators_queue_is_full(
    crowded: tuple[subprocess.Popen[bytes], str],
) -> None:
    process, address = crowded
    deadline = time.monotonic() + 180
    # Home directories with trash, and at every tick trees to reclaim.
    while value(address, "peacefs_changes_made_total") < 3:
        assert process.poll() is None, "it has stopped"
        assert time.monotonic() < deadline, "nothing is committed"
        request = urllib.request.Request(f"{address}/webhdfs/v1/a?op=MKDIRS&user.name=x", method="PUT")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=180)
        said = json.loads(refused.value.read())["RemoteException"]
        assert (refused.value.code, said["exception"]) == (403, "RetriableException"), said
        time.sleep(0.05)


@pytest.mark.evidence("coordinator-task-fails")
def test_background_task_that_fails_stops_the_coordinator_and_the_log_names_it(tmp_path: Path) -> None:
    """Otherwise it would wait for unknown chunks for ever, and answer as if they were known."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", _FORGETFUL, str(tmp_path / "data")],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 70, done.stderr
    assert "stopping: the background task" in done.stderr
    assert "the page is gone" in done.stderr
