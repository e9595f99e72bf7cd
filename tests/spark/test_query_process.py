"""A query's process group dies as a whole, and does not outlive its starter."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.waiting import wait_until

from peacefs.spark_connector.demo.query_process import QueryProcess

# A fake query: starts a child, as PySpark starts its JVM, and prints both pids.
QUERY = """
import os, subprocess, sys
from peacefs.service.lifeline import when_parent_dies
child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
when_parent_dies(sys.stdin.fileno(), lambda: os._exit(1))
print("pids", os.getpid(), child.pid, os.environ["COLOUR"], flush=True)
child.wait()
"""

STARTER = """
import sys, time
from pathlib import Path
from peacefs.spark_connector.demo.query_process import QueryProcess
query = QueryProcess("stand_in", Path("plan"), Path(sys.argv[1]), {{"PYTHONPATH": {modules!r}, "COLOUR": "red"}})
time.sleep(60)
"""


def await_true(condition: Callable[[], bool]) -> None:
    wait_until(condition, "it is so")


def runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def said_pids(log: Path) -> list[int]:
    await_true(lambda: log.exists() and b"\n" in log.read_bytes())
    return [int(word) for word in log.read_text().split()[1:3]]


@pytest.fixture
def modules(tmp_path: Path) -> str:
    """Return a directory for PYTHONPATH with fake query modules."""
    directory = tmp_path / "modules"
    directory.mkdir()
    (directory / "stand_in.py").write_text(QUERY)
    (directory / "short.py").write_text("import sys\nprint('first\\n\\nlast')\nsys.exit(3)\n")
    return str(directory)


def test_a_kill_ends_the_whole_group(tmp_path: Path, modules: str) -> None:
    log = tmp_path / "query.log"
    with QueryProcess("stand_in", tmp_path / "plan", log, {"PYTHONPATH": modules, "COLOUR": "red"}) as query:
        pids = said_pids(log)
        assert query.status is None
        assert all(runs(pid) for pid in pids)
        query.kill()
        assert query.status == -9
        assert not any(runs(pid) for pid in pids)
    assert log.read_text().split()[3] == "red"


def test_leaving_the_context_kills_what_still_runs(tmp_path: Path, modules: str) -> None:
    log = tmp_path / "query.log"
    with QueryProcess("stand_in", tmp_path / "plan", log, {"PYTHONPATH": modules, "COLOUR": "red"}):
        pids = said_pids(log)
    assert not any(runs(pid) for pid in pids)


def test_a_query_does_not_outlive_a_starter_that_was_killed(tmp_path: Path, modules: str) -> None:
    log = tmp_path / "query.log"
    starter = subprocess.Popen([sys.executable, "-c", STARTER.format(modules=modules), str(log)])
    try:
        pids = said_pids(log)
    finally:
        starter.kill()
        starter.wait()
    await_true(lambda: not any(runs(pid) for pid in pids))


def test_last_words_are_those_of_the_latest_run(tmp_path: Path, modules: str) -> None:
    log = tmp_path / "query.log"
    log.write_text("of the run before\n")
    with QueryProcess("short", tmp_path / "plan", log, {"PYTHONPATH": modules}) as query:
        await_true(lambda: query.status is not None)
        assert query.status == 3
        assert query.last_words(10) == ["first", "last"]
        assert query.last_words(1) == ["last"]
    assert log.read_text().startswith("of the run before")


def test_processor_time_is_that_of_the_whole_group_and_grows_while_it_works(tmp_path: Path, modules: str) -> None:
    (Path(modules) / "busy.py").write_text(
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'while True: pass'])\n"
        "print('begun', flush=True)\n"
        "child.wait()\n"
    )
    log = tmp_path / "query.log"
    with QueryProcess("busy", tmp_path / "plan", log, {"PYTHONPATH": modules}) as query:
        await_true(lambda: query.said_bytes > 0)
        before_s = query.processor_s
        await_true(lambda: query.processor_s > before_s + 0.5)
    assert query.processor_s == 0.0, "nothing of it is left"
