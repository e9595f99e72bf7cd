"""A member that is slow to start is waited for; one that hangs is given up."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from peacefs.client.local_cluster import member_process
from peacefs.client.local_cluster.member_process import LocalMember
from peacefs.protocol.errors import StartupError
from peacefs.service.signs_of_life import SignsOfLife

pytestmark = pytest.mark.cluster

#: Longer than a runnable process waits for a processor.
SILENCE_S = 3.0
#: Delays the command by so many seconds while using a little processor time, as on a busy machine.
SLOW = """
import os, sys, time

until_s = time.monotonic() + float(sys.argv[1])
while time.monotonic() < until_s:
    sum(range(500_000))
    time.sleep(0.1)
os.execvp(sys.argv[2], sys.argv[2:])
"""


@pytest.fixture
def coordinator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalMember]:
    """Return a process that is not started yet. The caller gives it less time than it takes, and watches its use
    of the processor.
    """
    monkeypatch.setattr(member_process, "local_start_timeout_s", SILENCE_S)
    reading, writing = os.pipe()
    arguments = ["coordinator", f"--dir={tmp_path / 'data'}", "--host=127.0.0.1", "--port=0", "--node-port=0"]
    log = tmp_path / "log"
    log.touch()
    slow = [sys.executable, "-c", SLOW, str(2 * SILENCE_S)]
    member = LocalMember("coordinator", lambda _before: arguments, lambda: log, reading, [], slow)
    try:
        yield member
    finally:
        member.kill()
        os.close(reading)
        os.close(writing)


def test_member_that_is_slow_to_start_is_waited_for_while_it_gets_something_done(coordinator: LocalMember) -> None:
    began_s = time.monotonic()
    coordinator.start()
    assert coordinator.await_ready().http_port
    assert time.monotonic() - began_s > SILENCE_S


def test_member_that_hangs_while_it_starts_is_given_up(coordinator: LocalMember) -> None:
    coordinator.start()
    os.kill(coordinator.pid, signal.SIGSTOP)
    with pytest.raises(StartupError, match="did not become ready in time"):
        coordinator.await_ready()


def test_member_that_is_busy_for_ever_is_given_up_in_the_end() -> None:
    life = SignsOfLife(0.0, silence_s=10.0, longest_s=100.0)
    for second in range(1, 100):
        life.seen(float(second), processor_s=float(second))
        assert not life.is_given_up(float(second))
    assert life.is_given_up(100.0)
