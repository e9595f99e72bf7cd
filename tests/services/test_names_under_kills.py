"""A coordinator is killed while clients change names: all answers must fit one order of changes."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from oracles.name_history import check
from oracles.name_tree import Call, Outcome
from support.long_runs import often
from support.name_doors import Door, FramesDoor, WebHdfsDoor
from support.name_workload import Recorder, Workload
from support.waiting import wait_until

from benchmarks.processor_time import children_of
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(often(300, 1500))]
_LASTS_S = float(os.environ.get("PEACEFS_KILLS_S", often(5, 600)))
_PAUSE_S = (1.2, 2.6)
_CHILD_S = 0.5
_GROUPS = ((FramesDoor, FramesDoor, WebHdfsDoor), (FramesDoor, WebHdfsDoor, WebHdfsDoor))


class Killed:
    """A cluster with one datanode, and clients that change names."""

    def __init__(self, cluster: LocalCluster, seed: int, groups: list[list[Door]], prefix: str) -> None:
        self.cluster = cluster
        self.recorder = Recorder()
        self.workload = Workload(self.recorder, seed, groups, prefix)
        self.kills = self.children_killed = 0
        self._left: set[int] = set()
        with PeaceFileSystem(cluster.http_address) as files:
            for top in self.workload.tops:
                files.mkdirs(f"/{top}")

    def kill_coordinator(self) -> None:
        """Kill the coordinator and restart it, with the same directory and port."""
        self._left.update(children_of(self.cluster.coordinator.pid))
        self.cluster.coordinator.kill()
        self.recorder.died()
        self.kills += 1
        self.cluster.restart(self.cluster.coordinator)

    def kill_child(self, chance: random.Random) -> None:
        """Kill a child of the coordinator, if there is one. The coordinator goes on, or is restarted."""
        children = children_of(self.cluster.coordinator.pid)
        if not children:
            return
        with suppress(ProcessLookupError):
            os.kill(chance.choice(children), signal.SIGKILL)
        self.children_killed += 1
        deadline = time.monotonic() + _CHILD_S
        while self.cluster.coordinator.alive and time.monotonic() < deadline:
            time.sleep(0.01)
        if not self.cluster.coordinator.alive:
            self.recorder.died()
            self.cluster.restart(self.cluster.coordinator)

    def look(self) -> None:
        """Read everything through both interfaces, and check that no child of a killed coordinator is left."""
        for door in (FramesDoor(self.cluster.http_address), WebHdfsDoor(self.cluster.http_address)):
            self.recorder.look(door, self.workload.tops)
            door.close()
        wait_until(lambda: not any(map(is_alive, self._left)), "children of killed coordinators end")
        assert not self.recorder.surprises, self.recorder.surprises


@contextmanager
def killed(cluster: LocalCluster, seed: int, prefix: str = "") -> Iterator[Killed]:
    """Yield a cluster with clients, in new directories whose names begin with `prefix`."""
    with ExitStack() as stack:
        groups: list[list[Door]] = [[kind(cluster.http_address) for kind in group] for group in _GROUPS]
        for group in groups:
            for door in group:
                stack.callback(door.close)
        yield Killed(cluster, seed, groups, prefix)


def work_for(world: Killed, seconds: float, chance: random.Random | None = None) -> None:
    """Let the clients work; with `chance`, kill the coordinator and its children meanwhile."""
    end = time.monotonic() + seconds
    world.workload.start()
    try:
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, chance.uniform(*_PAUSE_S) if chance else left))
            if chance is not None:
                if chance.random() < 0.5:
                    world.kill_child(chance)
                world.kill_coordinator()
    finally:
        world.workload.stop()


def is_alive(pid: int) -> bool:
    """Return whether a process is running. A zombie is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def checked(directory: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "peacefs", "metadata", "check", "--dir", str(directory)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.evidence("answers-survive-kill", "names-are-atomic")
def test_names_are_linearizable_while_the_coordinator_and_its_children_are_killed(tmp_path: Path) -> None:
    seed = int(os.environ.get("PEACEFS_SEED", random.SystemRandom().getrandbits(32)))
    print(f"seed {seed}")
    with (
        LocalCluster(tmp_path / "c", datanodes=1, port=0) as cluster,
        killed(cluster, seed) as world,
    ):
        work_for(world, _LASTS_S, random.Random(seed))
        world.kill_coordinator()
        world.look()
        history = world.recorder.operations()
        found = check(history, world.workload.tree())
        unknown = sum(operation.returned is None for operation in history)
        print(f"{len(history)} operations, {unknown} of unknown outcome")
        print(f"{world.kills} kills of the coordinator, {world.children_killed} of its children")
        assert found is None, str(found)
        assert world.kills >= 2 and len(history) > 50 * world.kills, "the clients did work between the kills"
    done = checked(tmp_path / "c" / "coordinator")
    assert done.returncode == 0, done.stdout + done.stderr


class ForgetfulDoor(WebHdfsDoor):
    """Answers its first creation itself, like a coordinator that forgets it."""

    has_lied = False

    def perform(self, call: Call) -> Outcome:
        if call.op == "create" and call.content and not self.has_lied:
            self.has_lied = True
            return True
        return super().perform(call)


def test_one_answer_that_is_lost_and_a_store_that_is_put_back_are_seen(tmp_path: Path) -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    with LocalCluster(tmp_path / "c", datanodes=1, port=0) as cluster:
        with killed(cluster, seed) as world:
            lying = ForgetfulDoor(cluster.http_address)
            work_for(world, 0.3)
            lie = Call("create", ("shared", "new"), content="never written")
            world.recorder.do("liar", lying, lie)
            world.look()
            found = check(world.recorder.operations(), world.workload.tree())
            assert lying.has_lied and found is not None
            assert lie in [operation.call for operation in found.operations], str(found)

        store, older = tmp_path / "c" / "coordinator", tmp_path / "older"
        with killed(cluster, seed, "more-") as world:
            cluster.coordinator.kill()
            shutil.copytree(store, older, ignore=shutil.ignore_patterns("*.socket"))
            cluster.restart(cluster.coordinator)
            work_for(world, 0.5)
            history, tree = world.recorder.operations(), world.workload.tree()
            assert any(each.outcome is True for each in history) and check(history, tree) is None
            cluster.coordinator.kill()
            shutil.rmtree(store)
            shutil.copytree(older, store)
            cluster.restart(cluster.coordinator)
            world.look()
            found = check(world.recorder.operations(), tree)
            assert found is not None


def test_children_of_a_process_are_found_until_they_end() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.pid in children_of(os.getpid()) and is_alive(child.pid)
        child.kill()
        child.wait()
        assert child.pid not in children_of(os.getpid()) and not is_alive(child.pid)
