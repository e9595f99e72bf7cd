"""Supervised queries on real metadata: durable before anyone is told, and placed near their checkpoint."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.immediate_commit import CommitsAtOnce, durable_at_once
from support.no_links import NoLinks
from support.play import Play, registration

from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.metadata.model import QueryRecord
from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.coordinator.namespace.permissions import Callers
from peacefs.coordinator.operations.context import OperationContext
from peacefs.coordinator.operations.queries.checkpoint_locality import find_locality
from peacefs.coordinator.operations.queries.query_runs import QueryRuns
from peacefs.coordinator.operations.queries.supervision import SupervisionService
from peacefs.coordinator.operations.viewer import Viewer
from peacefs.protocol.errors import AccessDenied, BadRequest, FileNotFound, ServiceUnready
from peacefs.protocol.messages import AgentBeat, AgentCommand, Receipt, ReportChunks, RunReport, WrittenChunk
from peacefs.protocol.new_file import NewFile
from peacefs.protocol.tokens import Signer
from peacefs.protocol.values.supervised_queries import QueryPhase


class Coordinator:
    """The part of a coordinator that supervises queries, on a persistent file. Commits wait where the test says
    so.
    """

    def __init__(self, path: Path, play: Play | None = None) -> None:
        self.metadata = open_store(path, owner="root")
        self.play = play or Play()
        self.now_s = 100.0
        self.before_commit: Callable[[], None] = lambda: None
        self.numbering = self.play.begin_epoch(self.metadata)

        context = OperationContext(
            self.metadata.reader(),
            CommitsAtOnce(self.metadata, lambda: self.before_commit()),
            self.play.core,
            Signer(b"secret"),
            NoLinks(),
            durable_at_once(self.metadata),
            callers=Callers("root"),
            monotonic=lambda: self.now_s,
        )
        self.supervising = SupervisionService(context, QueryRuns(context), lambda: "coordinator:9870")
        self.supervising.recall()

    def register(self, name: str = "orders", user: str = "alice", **changes: Any) -> None:
        fields = {"command": ("count",), "checkpoint": f"/{name}", "nodes": (), "restarts_max": 3}
        record = QueryRecord(name=name, user=user, is_superuser=False, **{**fields, **changes})
        asyncio.run(self.supervising.register(record))

    def beat(self, *runs: RunReport) -> list[str]:
        """Send a heartbeat of agent a; return the locations of its ordered runs."""
        commands = [AgentCommand("count", ["alice"], extra_arguments=False)]
        said = AgentBeat("a", "process", "host", "", commands, 4, list(runs))
        return [order.location for order in asyncio.run(self.supervising.heard(said)).runs]

    def tick(self, seconds: float = 0.0) -> None:
        self.now_s += seconds
        asyncio.run(self.supervising.tick())

    def write(self, path: str, *holders: str) -> None:
        number = self.numbering.next()
        chunk = WrittenChunk(number, number, 10, 0, [Receipt(node, b"") for node in holders])
        file = NewFile(
            path=path, user="ann", overwrite=True, replication=1, block_bytes=1 << 26, request_id=str(number)
        )
        published = run_now(self.metadata, lambda tx: namespace.complete_file(tx, file, [chunk], 1))
        self.play.publish(published.added)


def test_acknowledged_query_survives_a_kill_and_every_start_is_a_run_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "metadata.sqlite"
    first = Coordinator(path)
    with contextlib.closing(first.metadata):
        run_now(first.metadata, lambda tx: namespace.mkdirs(tx, parse_path("/orders"), "alice", 0o755, 1))
        first.register()
        assert first.beat() == []
        first.tick()
        (location,) = first.beat()
        assert location == f"/orders/.run-{first.supervising.status('orders').run}"
    second = Coordinator(path)
    with contextlib.closing(second.metadata):
        run = RunReport("orders", second.supervising.status("orders").run)
        assert second.beat(run) == [location]
        second.beat(RunReport(run.query, run.run, ended=True, status=1, last_words="no"))
        second.tick(2)
        (another,) = second.beat()
        assert another != location
        with pytest.raises(AccessDenied):
            asyncio.run(second.supervising.stop("orders", "mallory"))
        asyncio.run(second.supervising.stop("orders", "alice"))
    third = Coordinator(path)
    with contextlib.closing(third.metadata):
        assert third.supervising.status("orders").phase == QueryPhase.STOPPING.value
        assert third.beat() == []
        assert third.supervising.status("orders").phase == QueryPhase.STOPPED.value
        asyncio.run(third.supervising.forget("orders", "alice"))
        assert third.metadata.reader().supervised_queries() == []
        with pytest.raises(FileNotFound):
            third.supervising.status("orders")


def test_no_agent_is_told_of_a_run_before_that_is_committed(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path / "metadata.sqlite")
    told: list[list[str]] = []

    async def play() -> None:
        said = AgentBeat("a", "p", "host", "", [AgentCommand("count", ["alice"], extra_arguments=False)], 4, [])
        await coordinator.supervising.heard(said)

        def look() -> None:
            # A heartbeat arrives during the commit, and needs no commit itself.
            coordinator.before_commit = lambda: None
            reply = coordinator.supervising.heard(said)
            with pytest.raises(StopIteration) as stop:
                reply.send(None)
            told.append(stop.value.value.runs)

        coordinator.before_commit = look
        await coordinator.supervising.tick()
        assert len((await coordinator.supervising.heard(said)).runs) == 1

    with contextlib.closing(coordinator.metadata):
        coordinator.register(checkpoint="")
        asyncio.run(play())
    assert told == [[]]


def test_a_checkpoint_that_may_not_be_written_is_a_failure_for_good(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path / "metadata.sqlite")
    with contextlib.closing(coordinator.metadata):
        run_now(coordinator.metadata, lambda tx: namespace.mkdirs(tx, parse_path("/orders"), "bob", 0o755, 1))
        coordinator.register()
        coordinator.beat()
        coordinator.tick()
        assert coordinator.supervising.status("orders").phase == QueryPhase.FAILED.value
        assert "Permission denied" in coordinator.supervising.status("orders").reason
        assert coordinator.beat() == []


def test_status_says_which_agent_is_waited_for(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path / "metadata.sqlite")
    with contextlib.closing(coordinator.metadata):
        coordinator.beat()
        coordinator.register(command=("sum",))
        coordinator.tick()
        status = coordinator.supervising.status("orders")
        assert (status.phase, status.reason) == (
            "waiting",
            "no agent offers the command `sum'; a may start count",
        )
        assert coordinator.supervising.shown_to(Viewer("alice", sees_all=False)).queries == [status]


@pytest.mark.parametrize(
    "changes",
    [
        {"name": ""},
        {"name": "a/b"},
        {"name": "a b"},
        {"command": ()},
        {"command": ("count", "nul\0")},
        {"command": ("count", *["x"] * 1000)},
        {"nodes": ("",)},
        {"restarts_max": -1},
        {"checkpoint": "relative"},
    ],
)
def test_query_that_cannot_be_supervised_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    coordinator = Coordinator(tmp_path / "metadata.sqlite")
    with contextlib.closing(coordinator.metadata), pytest.raises(BadRequest):
        coordinator.register(**changes)


def test_checkpoint_locality_by_host_and_rack(tmp_path: Path, play: Play) -> None:
    coordinator = Coordinator(tmp_path / "metadata.sqlite", play)
    with contextlib.closing(coordinator.metadata):
        for node, rack in (("n1", "/r1"), ("n2", "/r1"), ("n3", "/r2")):
            play.cluster.register(play.now_s, registration(node, rack, host=f"host-{node}"))
            play.cluster.report(play.now_s, node, ReportChunks([], last=True))
            play.beating.add(node)
        play.open_for_business()
        coordinator.write("/orders/offsets/0", "n1", "n2")
        coordinator.write("/orders/state/0/1/1.delta", "n2", "n3")
        coordinator.write("/others/0", "n3")
        turns = find_locality(coordinator.metadata.reader(), play.cluster, "/orders")
        while True:
            try:
                next(turns)
            except StopIteration as stop:
                holdings = stop.value
                break
        assert holdings.by_host == {"host-n1": 10, "host-n2": 20, "host-n3": 10}
        assert holdings.by_rack == {"/r1": 20, "/r2": 10}
        assert holdings.rack_of["host-n3"] == "/r2"
        with pytest.raises(StopIteration) as nothing:
            next(find_locality(coordinator.metadata.reader(), play.cluster, "/none"))
        assert nothing.value.value.by_host == {}


@pytest.mark.evidence("coordinator-disk-full")
def test_decision_made_on_a_full_disk_is_committed_later_and_handed_over_then(tmp_path: Path) -> None:
    """The core decides only once, so the decision must not be lost, nor reported before its commit."""

    def refuse() -> None:
        raise ServiceUnready("the disk is full")

    path = tmp_path / "metadata.sqlite"
    first = Coordinator(path)
    with contextlib.closing(first.metadata):
        run_now(first.metadata, lambda tx: namespace.mkdirs(tx, parse_path("/orders"), "alice", 0o755, 1))
        first.register()
        first.beat()
        first.tick()
        run = RunReport("orders", first.supervising.status("orders").run)
        first.before_commit = refuse
        with pytest.raises(ServiceUnready):
            first.beat(RunReport(run.query, run.run, ended=True, status=1, last_words="no"))
        for _ in range(3):
            with pytest.raises(ServiceUnready):
                first.tick(2)
        first.before_commit = lambda: None
        first.tick()
        first.tick(10)
        (location,) = first.beat()
        assert location == f"/orders/.run-{first.supervising.status('orders').run}"
    second = Coordinator(path)
    with contextlib.closing(second.metadata):
        assert second.supervising.status("orders").run == location.removeprefix("/orders/.run-")


def test_agents_show_a_user_what_they_start_for_him_and_not_where_they_are(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path / "metadata.sqlite")
    with contextlib.closing(coordinator.metadata):
        commands = [
            AgentCommand("count", ["alice"], extra_arguments=False),
            AgentCommand("purge", [], extra_arguments=True),
        ]
        asyncio.run(coordinator.supervising.heard(AgentBeat("a", "process", "host-7", "/rack-7", commands, 4, [])))
        shown = {
            who: [
                (each.commands, each.host, each.rack) for each in coordinator.supervising.shown_to(viewer).agents
            ]
            for who, viewer in (
                ("alice", Viewer("alice", False)),
                ("bob", Viewer("bob", False)),
                ("root", Viewer("root", True)),
            )
        }
    assert shown == {
        "alice": [(["count"], "", "")],
        "bob": [],
        "root": [(["count", "purge"], "host-7", "/rack-7")],
    }
