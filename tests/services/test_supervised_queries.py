"""Agents as processes: a query whose node dies continues elsewhere from its checkpoint, and never runs twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from support.prometheus import scraped
from support.supervised_world import World, accounts_of_tests, runs
from support.waiting import PATIENCE_S, wait_until

from peacefs.client.control.addresses import split_uri
from peacefs.client.control.supervised_queries import SupervisedQueries, WantedQuery
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.protocol.errors import AccessDenied, BadRequest, PeacefsError, RunSuperseded, StartupError
from peacefs.protocol.values.supervised_queries import QueryPhase, QueryStatus
from peacefs.spark_connector.supervision.command_list import read_command_list
from peacefs.spark_connector.supervision.registration import supervise

pytestmark = pytest.mark.cluster
#: The duration of its sleeps, unique on this machine.
_NAP = str(600 + os.getpid())

# Counts to the end, and writes each number once as a file of its checkpoint. It reports its node and user. In the
# middle it waits for a file, which the test makes after its fault.
COUNTER = """
import os, sys, time
from peacefs.client.control.addresses import split_uri
from peacefs.client.filesystem import PeaceFileSystem

address, root = split_uri(os.environ["PEACEFS_CHECKPOINT"])
assert sys.argv[1] == os.environ["PEACEFS_CHECKPOINT"]
assert "PEACEFS_SECRET_FILE" not in os.environ
with PeaceFileSystem(address.http) as files:
    print(os.environ["AGENT"], os.getpid(), root, flush=True)
    while True:
        done = sorted(int(each.path.rpartition("/")[2]) for each in files.list(root))
        number = done[-1] + 1 if done else 0
        while number == 10 and not files.exists("/go-on"):
            time.sleep(0.05)
        if number == 30:
            break
        files.write(f"{root}/{number}", str(number).encode())
        time.sleep(0.05)
"""


# The same, but it asks for its run, as the driver of a standby must, and writes numbers only as that run.
ASKING_COUNTER = """
import os, sys, time
from peacefs.client.control.addresses import split_uri
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.spark_connector.runs import begin_run

print(os.environ["AGENT"], os.getpid(), os.environ["PEACEFS_CHECKPOINT"], flush=True)
run = begin_run(os.environ["PEACEFS_CHECKPOINT_ROOT"])
address, root = split_uri(run.location)
with PeaceFileSystem(address.http) as files:
    while True:
        done = sorted(int(each.path.rpartition("/")[2]) for each in files.list(root))
        number = done[-1] + 1 if done else 0
        while number == 10 and not files.exists("/go-on"):
            time.sleep(0.05)
        if number == 30:
            break
        files.write(f"{root}/{number}", f"{os.environ['AGENT']} {run.number}".encode())
        time.sleep(0.05)
"""


def commands(name: str) -> str:
    """Return a list with the counter, and little else."""
    return f"""
        runs_max = 2
        [commands.count]
        program = "{sys.executable}"
        arguments = ["-P", "-c", '''{COUNTER}''', "{{checkpoint}}"]
        environment = {{ AGENT = "{name}" }}
        [commands.asking-count]
        program = "{sys.executable}"
        arguments = ["-P", "-c", '''{ASKING_COUNTER}''']
        environment = {{ AGENT = "{name}" }}
        [commands.sleep]
        program = "/bin/sleep"
        extra_arguments = true
        {accounts_of_tests()}
    """


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World.running(tmp_path) as world:
        yield world


def test_log_of_a_query_is_shown_to_its_user_while_it_runs_and_afterwards(world: World) -> None:
    world.agent("north", commands("north"))
    coordinator = world.cluster.http_address
    supervise(["count"], coordinator=coordinator, checkpoint="/checkpoints/numbers")

    def log(user: str) -> httpx.Response:
        return httpx.get(f"{coordinator}/v1/queries/numbers/log", params={"user": user}, timeout=180)

    with SupervisedQueries(coordinator) as queries:
        wait_until(lambda: len(world.said("numbers")) == 1, "the query starts")
        status = queries.status("numbers")
        shown = log(status.user).json()
        assert (shown["query"], shown["run"], shown["agent"]) == ("numbers", status.run, "north")
        assert shown["text"].startswith("north ") and status.location in shown["text"]
        assert log("stranger").status_code == 403
        assert httpx.get(f"{coordinator}/v1/queries/none/log", timeout=180).status_code == 404
        queries.stop("numbers")
        wait_until(lambda: queries.status("numbers").phase == QueryPhase.STOPPED.value, "it has stopped")
        assert log(status.user).json() == shown


@pytest.mark.evidence("query-node-dies")
def test_a_query_whose_node_dies_goes_on_elsewhere_and_its_old_run_writes_nothing_more(world: World) -> None:
    world.agent("north", commands("north"))
    coordinator = world.cluster.http_address
    supervise(["count"], coordinator=coordinator, checkpoint="/checkpoints/numbers")
    world.agent("south", commands("south"))
    with SupervisedQueries(coordinator) as queries, PeaceFileSystem(coordinator) as files:

        def now() -> QueryStatus:
            return queries.status("numbers")

        wait_until(lambda: len(world.said("numbers")) == 1, "the query starts")
        ((first, pid, old_location),) = world.said("numbers")
        assert (first, now().phase, now().agent) == ("north", "running", "north")
        wait_until(lambda: files.exists("/checkpoints/numbers/5"), "it makes progress")

        os.kill(world.agents["north"].pid, signal.SIGKILL)
        wait_until(lambda: not runs(int(pid)), "nothing outlives its agent")
        files.write("/go-on", b"")
        world.cluster.coordinator.kill()
        world.cluster.restart(world.cluster.coordinator)
        wait_until(lambda: len(world.said("numbers")) == 2, "it is started again")
        assert (now().agent, now().restarts) == ("south", 1)
        with pytest.raises(RunSuperseded):
            files.write(f"{old_location}/6000", b"too late")

        wait_until(lambda: now().phase == "ended", "it comes to its end")
        assert now().reason == "it ended with exit status 0"
        names = {each.path.rpartition("/")[2] for each in files.list("/checkpoints/numbers")}
        assert names == {str(number) for number in range(30)}
        assert files.read("/checkpoints/numbers/29") == b"29"


@pytest.mark.evidence("query-node-dies")
def test_standby_of_a_query_is_given_the_run_when_the_driver_dies_and_no_number_is_lost(world: World) -> None:
    world.agent("north", commands("north"))
    coordinator = world.cluster.http_address
    supervise(["asking-count"], coordinator=coordinator, checkpoint="/checkpoints/numbers", standby=True)
    with SupervisedQueries(coordinator) as queries, PeaceFileSystem(coordinator) as files:

        def now() -> QueryStatus:
            return queries.status("numbers")

        wait_until(lambda: now().phase == "running", "the query runs")
        first = now().run
        world.agent("south", commands("south"))
        wait_until(lambda: now().standby == "ready", "its standby waits")
        assert (now().agent, now().standby_agent) == ("north", "south")
        starts = world.said("numbers")
        assert [agent for agent, _pid, _location in starts] == ["north", "south"]
        with pytest.raises(RunSuperseded):
            files.write(f"{split_uri(starts[1][2])[1]}/6000", b"a standby has no run")

        os.kill(int(starts[0][1]), signal.SIGKILL)
        files.write("/go-on", b"")
        wait_until(lambda: now().run != first and now().phase == "running", "the standby is given a run")
        assert (now().agent, now().restarts) == ("south", 1)
        wait_until(lambda: now().phase == "ended", "it comes to its end")
        numbers = {int(each.path.rpartition("/")[2]): each.path for each in files.list("/checkpoints/numbers")}
        assert sorted(numbers) == list(range(30))
        assert files.read(numbers[0]).decode() == f"north {first}"
        assert files.read(numbers[29]).decode() == f"south {now().run}"
        told = _told(coordinator)
        assert told["peacefs_supervised_runs_taken_over_total", ""] == 1


@pytest.mark.evidence("query-node-dies")
def test_drivers_that_die_and_stop_and_what_is_refused(world: World) -> None:
    north = world.agent("north", commands("north"))
    coordinator = world.cluster.http_address
    command = [sys.executable, "-P", "-m", "peacefs", "supervise", "-c", coordinator, "--json"]
    with SupervisedQueries(coordinator) as queries:
        done = subprocess.run(
            [*command, "--name", "naps", "--on", "north", "--", "sleep", _NAP],
            capture_output=True,
            text=True,
            check=True,
            timeout=180,
        )
        assert json.loads(done.stdout)["name"] == "naps"
        wait_until(lambda: queries.status("naps").phase == "running", "it runs")
        wait_until(lambda: len(_sleepers()) == 1, "one process of it")
        (sleeper,) = _sleepers()
        os.kill(sleeper, signal.SIGKILL)
        wait_until(lambda: queries.status("naps").restarts == 1, "its death is noticed")
        assert "exit status 137" in queries.status("naps").reason
        wait_until(lambda: len(_sleepers()) == 1, "it is started again")
        assert _sleepers() != [sleeper]
        wait_until(lambda: _told(coordinator)["peacefs_agent_runs", "north"] == 1, "the agent has said so")
        told = _told(coordinator)
        assert (told["peacefs_agents", ""], told["peacefs_agent_runs_max", "north"]) == (1, 2)
        phases = {phase.value: told["peacefs_supervised_queries", phase.value] for phase in QueryPhase}
        assert phases == {phase.value: float(phase is QueryPhase.RUNNING) for phase in QueryPhase}
        assert told["peacefs_supervised_runs_begun_total", ""] == 2
        assert (told["peacefs_supervised_runs_failed_total", ""], told["peacefs_agents_lost_total", ""]) == (1, 0)

        with SupervisedQueries(coordinator, user="mallory") as strangers, pytest.raises(AccessDenied):
            strangers.stop("naps")
        with pytest.raises(BadRequest):
            queries.register(WantedQuery("no good", ["sleep"]))
        queries.register(WantedQuery("reboots", ["reboot"]))
        assert queries.status("reboots").phase == "waiting"

        subprocess.run([*command, "--stop", "naps"], check=True, timeout=180, stdout=subprocess.DEVNULL)
        wait_until(lambda: queries.status("naps").phase == "stopped", "it is stopped")
        assert _sleepers() == []
        assert [(each.name, each.commands) for each in queries.all().agents] == [
            ("north", ["count", "asking-count", "sleep"])
        ]

        queries.register(WantedQuery("naps", ["sleep", _NAP]))
        wait_until(lambda: len(_sleepers()) == 1, "it is started anew")
        north.terminate()
        assert north.await_end(time.monotonic() + PATIENCE_S)
        assert _sleepers() == []
        wait_until(lambda: queries.status("naps").phase == "waiting", "the agent has taken its leave")


def _told(coordinator: str) -> dict[tuple[str, str], float]:
    return scraped(coordinator.removeprefix("http://"))


def _sleepers() -> list[int]:
    """Return the processes that sleep for a supervised query."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and (entry / "cmdline").read_bytes() == f"/bin/sleep\0{_NAP}\0".encode():
                found.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in found if runs(pid)]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "Object missing required field `commands`"),
        ("[commands]", "lists no command"),
        ("[commands.a]\nprogram = 'python'", "must be an absolute path"),
        ("[commands.a]\nprogram = '/bin/true'\nshell = true", "unknown field `shell`"),
        ("runs_max = 0\n[commands.a]\nprogram = '/bin/true'", "it can be 1 to"),
        ("[commands", "no list of commands"),
    ],
)
def test_a_list_with_a_mistake_says_which(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "commands.toml"
    file.write_text(text)
    with pytest.raises(StartupError, match=complaint):
        read_command_list(file)


def test_a_missing_list_is_a_fault_that_is_told(tmp_path: Path) -> None:
    with pytest.raises(PeacefsError, match="No such file"):
        read_command_list(tmp_path / "none")


def test_agent_whose_coordinator_is_away_says_so_once_and_says_when_it_is_back(world: World) -> None:
    world.agent("patient", commands("patient"))
    log = world.directory / "patient" / "agent.log"
    world.cluster.coordinator.kill()
    wait_until(lambda: "trying again" in log.read_text(), "the agent says that it cannot reach the coordinator")
    # Several attempts fail meanwhile: the first pauses are half a second, one and two seconds.
    assert wait_for_silence(log, 6.0)
    world.cluster.restart(world.cluster.coordinator)
    wait_until(lambda: "answers again" in log.read_text(), "the agent says that the coordinator is back")
    said = log.read_text()
    assert (said.count("trying again"), said.count("answers again")) == (1, 1)


def wait_for_silence(log: Path, seconds: float) -> bool:
    """Return whether nothing is added to a log for a given time."""
    before, until_s = log.read_text(), time.monotonic() + seconds
    while time.monotonic() < until_s:
        if log.read_text() != before:
            return False
        time.sleep(0.05)
    return True
