"""Dataflows handed to a cluster: an agent runs the program, and each row is delivered once whatever dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.long_runs import IS_LONG
from support.supervised_world import World, accounts_of_tests, runs
from support.waiting import wait_until

from peacefs.client.control.addresses import parse_address
from peacefs.client.control.query_runs import CheckpointRuns
from peacefs.client.control.supervised_queries import SupervisedQueries
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.shared_directories import make_shared_directories
from peacefs.dataflow.programs.submission import submit
from peacefs.protocol.errors import AccessDenied, FileAlreadyExists
from peacefs.protocol.values.supervised_queries import QueryStatus

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

_NOON = datetime(2026, 1, 1, 12)

APP = """
import os
import sys
from peacefs.dataflow import Query, functions as F
from peacefs.dataflow.connectors import FileSink, FileSource
from peacefs.dataflow.connectors.file_source import FileRead
from peacefs.dataflow.programs import run
from peacefs.dataflow.techniques.sguard import SGuard

home = sys.argv[1]
with open(f"{home}/pids", "a") as pids:
    print(os.getpid(), file=pids)
schema = {"user": "string", "at": "timestamp", "bytes": "long"}
read = FileRead(follow=sys.argv[2] == "follow")
rows = FileSource(f"file://{home}/in", schema, time="at", format="parquet", read=read)
query = Query("sums")
stream = query.source("rows", rows.type).filter(F.col("bytes") > 0).unit("sums").key_by("user")
stream.count_window(10, every=10).aggregate(F.count(), F.sum("bytes")).sink("sums")
sink = FileSink(f"file://{home}/out", format="parquet", interval_s=0.2)
run(query, SGuard(interval_s=float(sys.argv[3])), {"rows": rows}, {"sums": sink}, nodes=2)
"""


def commands() -> str:
    return f"""
        runs_max = 2
        [commands.dataflow]
        program = "{sys.executable}"
        arguments = ["-P", "-m", "peacefs.dataflow.programs.start_app"]
        extra_arguments = true
        stop_s = 8
        {accounts_of_tests()}
    """


class Job:
    """The files of the app: rows that come in, sums that come out, and the processes that ran."""

    def __init__(self, home: Path) -> None:
        self.home = home
        (home / "in").mkdir(parents=True)
        self.program = home / "sums.py"
        self.program.write_text(APP)
        self.files = 0

    def add_file(self) -> None:
        """Add a file of 100 rows, ten of each of ten users."""
        first = self.files * 100
        rows = [
            {"user": f"u{row % 10}", "at": _NOON + timedelta(milliseconds=first + row), "bytes": first + row + 1}
            for row in range(100)
        ]
        schema = pa.schema([("user", pa.string()), ("at", pa.timestamp("us")), ("bytes", pa.int64())])
        staged = self.home / "in" / f"_{self.files}"
        pq.write_table(pa.Table.from_pylist(rows, schema), staged)
        staged.rename(self.home / "in" / f"{self.files:04}.parquet")
        self.files += 1

    def expected(self) -> list[tuple[str, int, int]]:
        return sorted(
            (f"u{user}", 10, sum(number * 100 + row + 1 for row in range(user, 100, 10)))
            for number in range(self.files)
            for user in range(10)
        )

    def out(self) -> list[tuple[str, int, int]]:
        """Return all rows in the directory of the sink, as PyArrow reads them."""
        rows = [row for file in (self.home / "out").glob("*.parquet") for row in pq.read_table(file).to_pylist()]
        return sorted((row["user"], row["count"], row["sum_bytes"]) for row in rows)

    def pids(self) -> list[int]:
        file = self.home / "pids"
        return [int(line) for line in file.read_text().split()] if file.exists() else []


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path / "job")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World.running(tmp_path) as world:
        yield world


def peacefs(world: World, *arguments: str) -> Any:
    """Run a command of `peacefs dataflow`, in a process that is gone when this returns; return its JSON."""
    command = [sys.executable, "-P", "-m", "peacefs", "dataflow", *arguments]
    environment = {**os.environ, "PEACEFS_COORDINATOR": world.cluster.http_address}
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def status(world: World, name: str) -> QueryStatus:
    with SupervisedQueries(world.cluster.http_address) as queries:
        return queries.status(name)


def refused(world: World, *arguments: str) -> str:
    """Run a command that fails, and return its one line."""
    command = [sys.executable, "-P", "-m", "peacefs", "dataflow", *arguments]
    environment = {**os.environ, "PEACEFS_COORDINATOR": world.cluster.http_address}
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, env=environment, check=False)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done
    return done.stderr


def _reported(world: World) -> dict[str, Any]:
    """Return what the run that is under way reports: its units with checkpoints, and rows."""
    location = status(world, "sums").location
    with CheckpointRuns(parse_address(world.cluster.http_address)) as coordinator:
        found = [each.dataflow for each in coordinator.reports("/") if each.location == location]
    if not found or found[0] is None:
        return {}
    units = {each.name: each.reads for each in found[0].units if each.checkpoints and each.node}
    rows = {"sources": [each.rows for each in found[0].sources], "sinks": [each.rows for each in found[0].sinks]}
    return {"units": units, **rows}


def _coordinator_and_agent_die(world: World, job: Job) -> None:
    world.cluster.coordinator.kill()
    world.cluster.restart(world.cluster.coordinator)
    job.add_file()
    wait_until(lambda: job.out() == job.expected(), "rows come out after the death of the coordinator")

    world.agent("south", commands())
    before = len(job.pids())
    os.kill(world.agents["north"].pid, signal.SIGKILL)
    wait_until(lambda: not runs(job.pids()[before - 1]), "the program ends with its agent")
    job.add_file()
    wait_until(lambda: len(job.pids()) == before + 1, "another agent starts the program")
    wait_until(lambda: job.out() == job.expected(), "rows come out after the death of the agent")
    (listed,) = peacefs(world, "list", "--json")
    assert (listed["phase"], listed["agent"]) == ("running", "south")


def test_program_agent_and_coordinator_die_and_each_row_comes_once(world: World, job: Job) -> None:
    world.agent("north", commands())
    job.add_file()
    started = peacefs(world, "run", str(job.program), "--json", "--", str(job.home), "follow", "0.3")
    assert (started["name"], started["command"][0]) == ("sums", "dataflow")
    wait_until(lambda: job.out() == job.expected(), "the first rows come out")
    wait_until(
        lambda: _reported(world) == {"units": {"sums": ["rows"]}, "sources": [100], "sinks": [10]},
        "the program reports its rows and a checkpoint",
    )

    os.kill(job.pids()[0], signal.SIGKILL)
    job.add_file()
    wait_until(lambda: status(world, "sums").restarts == 1, "the death is seen")
    (listed,) = peacefs(world, "list", "--json")
    assert (listed["name"], listed["phase"] in {"waiting", "starting", "running"}) == ("sums", True)
    wait_until(lambda: len(job.pids()) == 2, "the program is started again")
    wait_until(lambda: job.out() == job.expected(), "rows come out after the death of the program")
    wait_until(lambda: _reported(world).get("sinks") == [10], "the next program reports only its own rows")
    shown = peacefs(world, "show", "sums", "--json")
    assert (shown["phase"], shown["report"]["sinks"][0]["rows"]) == ("running", 10)

    if IS_LONG:
        _coordinator_and_agent_die(world, job)

    peacefs(world, "stop", "sums", "--json")
    wait_until(lambda: status(world, "sums").phase == "stopped", "it stops")
    assert job.out() == job.expected()


@pytest.mark.long("a minute of stops and starts")
def test_stopped_query_continues_behind_its_last_checkpoint(world: World, job: Job) -> None:
    world.agent("north", commands())
    for _ in range(5):
        job.add_file()

    def units() -> set[str]:
        with PeaceFileSystem(world.cluster.http_address) as files:
            return set(json.loads(files.read(f"/user/{files.user}/dataflows/other/query.json"))["units"])

    # By itself, it would write its first checkpoint after an hour.
    given = ["--json", "--name", "other", "--", str(job.home)]
    peacefs(world, "run", str(job.program), *given, "follow", "3600")
    wait_until(lambda: job.out() == job.expected(), "all rows come out")
    before = units()
    peacefs(world, "stop", "other", "--json")
    wait_until(lambda: status(world, "other").phase == "stopped", "it stops")
    assert not runs(job.pids()[0])
    assert before == set()
    assert "sums" in units()
    job.add_file()
    peacefs(world, "run", str(job.program), *given, "once", "3600")
    wait_until(lambda: status(world, "other").phase == "ended", "it ends with its source")
    assert job.out() == job.expected()


def test_what_is_refused_in_one_line(world: World, job: Job) -> None:
    assert "no agent" in refused(world, "run", str(job.program))
    assert "cannot read" in refused(world, "run", str(job.home / "none.py"))
    wrong = job.home / "wrong.py"
    wrong.write_text("query = (\n")
    assert "wrong.py, line 1 is no Python: '(' was never closed" in refused(world, "run", str(wrong))
    world.agent("north", commands())
    failing = job.home / "failing.py"
    failing.write_text("raise ValueError('out of luck')\n")
    peacefs(world, "run", str(failing), "--restarts", "1", "--json")
    wait_until(lambda: status(world, "failing").phase == "failed", "it is given up")
    shown = peacefs(world, "show", "failing", "--json")
    assert shown["reason"] == "it failed 2 times, in the end because exit status 1: ValueError: out of luck"
    assert "ValueError: out of luck" in peacefs(world, "logs", "failing", "--json")["text"]
    peacefs(world, "run", str(job.program), "--json", "--", str(job.home), "follow", "0.3")
    assert "a query sums is" in refused(world, "run", str(job.program), "--", str(job.home), "follow", "0.3")
    assert "there is no supervised query nothing" in refused(world, "stop", "nothing")
    with pytest.raises(AccessDenied, match=r"let a superuser make /user/ann \(`peacefs prepare ann`\)"):
        submit(failing, coordinator=world.cluster.http_address, name="hers", user="ann")
    with PeaceFileSystem(world.cluster.http_address) as files:
        assert "/user/ann" in make_shared_directories(files, ["ann"])
    with pytest.raises(FileAlreadyExists, match="another user has a query failing"):
        submit(failing, coordinator=world.cluster.http_address, user="ann")
    assert status(world, "failing").user != "ann"
