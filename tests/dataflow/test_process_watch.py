"""A process that has work is distinguished from a stopped one, however busy the machine is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.waiting import wait_until

from peacefs.dataflow.hosts.process_watch import ProcessState, ProcessWatch, parse


def _state(pid: int) -> str:
    return parse(Path(f"/proc/{pid}/stat").read_text()).state


@pytest.fixture
def busy() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def test_process_state_is_read_whatever_the_process_is_called() -> None:
    stat = "17 (a (b) S) R 1 17 17 0 -1 4194304 1 2 3 4 250 31 0 0 20 0 1 0 5 6 7"
    assert parse(stat) == ProcessState("R", 281)


def test_process_at_work_is_known_from_one_that_stands_still(busy: int) -> None:
    watch = ProcessWatch(busy)
    assert watch.at_work()
    os.kill(busy, signal.SIGSTOP)
    wait_until(lambda: _state(busy) == "T", "a process that was stopped")
    # This call reports the work before the stop.
    watch.at_work()
    assert not watch.at_work()
    os.kill(busy, signal.SIGCONT)
    wait_until(watch.at_work, "a process that goes on")


def test_process_that_is_gone_is_not_at_work() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
        assert not ProcessWatch(process.pid).at_work()
