"""Names through three doors of a real coordinator, with stops and kills between the steps, against a model."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from oracles.name_tree import SUPERUSER, Call, Names, Node, Tree, apply
from support.hdfs_door import HdfsDoor
from support.long_runs import often
from support.name_doors import Door, FramesDoor, WebHdfsDoor
from support.waiting import wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(often(300, 1500))]
_STOP_S = 60.0
#: Restarts of the coordinator in one example. Its datanode reconnects within five seconds.
_ENDS_MAX = often(1, 3)

PATHS = st.lists(st.sampled_from("ab"), min_size=1, max_size=3).map(tuple)
USERS = st.sampled_from((SUPERUSER, "ann", "ann", "bob"))
DOORS = st.sampled_from((0, 1, 2))
MODES = st.sampled_from((0o755, 0o777, 0o1777, 0o700, 0o711, 0o555, 0o644))


class NamesMachine(RuleBasedStateMachine):
    """Makes the same changes in its own directory and in the model. Machines share a cluster."""

    cluster: LocalCluster
    doors: tuple[Door, Door, Door]
    numbers = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        self.top: Names = (f"m{next(self.numbers)}",)
        self.tree = Tree({(): Node(None)})
        self.ends = 0

    @initialize()
    def begin(self) -> None:
        """Make the directory writable for everyone."""
        self.both(0, Call("mkdirs", ()))
        self.both(0, Call("set_permission", (), permission=0o777))

    def both(self, door: int, call: Call) -> None:
        """Perform a call with paths below the directory in both."""
        target = self.top + call.target if call.op == "rename" else ()
        asked = call._replace(path=self.top + call.path, target=target)
        self.tree, expected = apply(self.tree, asked)
        told = self.doors[door].perform(asked)
        note(f"{self.doors[door].name}: {asked}: {told}")
        assert told == expected, f"{self.doors[door].name}: {asked}: told {told}, expected {expected}"

    @rule(door=DOORS, path=PATHS, user=USERS, permission=st.just(0) | MODES)
    def mkdirs(self, door: int, path: Names, user: str, permission: int) -> None:
        self.both(door, Call("mkdirs", path, user=user, permission=permission))

    @rule(
        door=DOORS, path=PATHS, user=USERS, overwrite=st.booleans(), content=st.sampled_from(["", "", "", "text"])
    )
    def create(self, door: int, path: Names, user: str, overwrite: bool, content: str) -> None:
        self.both(door, Call("create", path, content=content, overwrite=overwrite, user=user))

    @rule(door=DOORS, path=PATHS, onto=PATHS, user=USERS, overwrite=st.booleans())
    def rename(self, door: int, path: Names, onto: Names, user: str, overwrite: bool) -> None:
        self.both(door, Call("rename", path, target=onto, overwrite=overwrite, user=user))

    @rule(door=DOORS, path=PATHS, user=USERS, recursive=st.booleans())
    def delete(self, door: int, path: Names, user: str, recursive: bool) -> None:
        self.both(door, Call("delete", path, recursive=recursive, user=user))

    @rule(door=DOORS, path=PATHS, user=USERS, op=st.sampled_from(("read", "stat", "list")))
    def look(self, door: int, path: Names, user: str, op: str) -> None:
        self.both(door, Call(op, path, user=user))

    @rule(door=DOORS, path=PATHS, user=USERS, permission=MODES)
    def set_permission(self, door: int, path: Names, user: str, permission: int) -> None:
        self.both(door, Call("set_permission", path, permission=permission, user=user))

    @rule(door=DOORS, path=PATHS, user=USERS, owner=st.sampled_from(("ann", "bob")))
    def set_owner(self, door: int, path: Names, user: str, owner: str) -> None:
        self.both(door, Call("set_owner", path, owner=owner, user=user))

    @rule(
        door=DOORS,
        path=st.just(()) | PATHS,
        user=st.sampled_from((SUPERUSER, SUPERUSER, "ann")),
        limit=st.sampled_from((1, 2, 4, 6, -1)),
    )
    def set_quota(self, door: int, path: Names, user: str, limit: int) -> None:
        self.both(door, Call("set_quota", path, limit=limit, user=user))

    @precondition(lambda self: self.ends < _ENDS_MAX)
    @rule(way=st.sampled_from(("kill", "stop")))
    def end_coordinator(self, way: str) -> None:
        """Restart the coordinator; then everything must still exist."""
        self.ends += 1
        coordinator = self.cluster.coordinator
        if way == "stop":
            coordinator.terminate()
            assert coordinator.await_end(time.monotonic() + _STOP_S), "the coordinator does not stop"
        coordinator.kill()
        self.cluster.restart(coordinator)
        wait_until(self.is_ready, "the coordinator is ready and has its datanode")
        self.compare(1)

    def is_ready(self) -> bool:
        with PeaceFileSystem(self.cluster.http_address) as files:
            status = files.cluster_status()
        return bool(status["ready"]) and [node["state"] for node in status["datanodes"]] == ["alive"]

    def teardown(self) -> None:
        self.compare(0)

    def compare(self, door: int) -> None:
        """Compare everything that the model has."""
        depth = len(self.top)
        for path, there in sorted(self.tree.nodes.items()):
            if path[:depth] != self.top:
                continue
            self.both(door, Call("stat", path[depth:]))
            self.both(door, Call("list" if there.is_directory else "read", path[depth:]))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path / "c", datanodes=1, port=0) as cluster:
        yield cluster


@pytest.mark.evidence("answers-survive-kill", "names-are-atomic")
def test_outcomes_through_all_doors_are_those_of_the_model_across_stops_and_kills(cluster: LocalCluster) -> None:
    NamesMachine.cluster = cluster
    webhdfs = WebHdfsDoor(cluster.http_address)
    NamesMachine.doors = (FramesDoor(cluster.http_address), webhdfs, HdfsDoor(cluster.hdfs_uri, webhdfs))
    try:
        run_state_machine_as_test(
            NamesMachine,
            settings=settings(
                max_examples=often(10, 100),
                stateful_step_count=often(40, 60),
                suppress_health_check=list(HealthCheck),
                # Each retried step costs requests, and perhaps restarts of the coordinator.
                phases=(Phase.generate, Phase.shrink)[: often(1, 2)],
            ),
        )
    finally:
        for door in NamesMachine.doors:
            door.close()
