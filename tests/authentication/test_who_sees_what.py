"""The table of docs/security.md: what each caller may see of ann's data and of the machines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import httpx
import pytest

from peacefs.client.control.token_administration import TokenAdministration
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster

pytestmark = pytest.mark.cluster

NAME, SECRET, ROOT, HOST = "orders-of-ann", "--key=a7f3c1", "/of-ann/orders", "machine-of-ann"
#: Who may see what belongs to ann, and what belongs to the machines.
ANNS, MACHINES, ALL = (
    {"ann", "root", "administrator"},
    {"root", "administrator"},
    {"ann", "bob", "root", "administrator"},
)


class World(NamedTuple):
    """The cluster, and the token of each caller."""

    cluster: LocalCluster
    tokens: Mapping[str, str]
    #: Results so far, by caller and path.
    seen: dict[tuple[str, str], str]

    def asked(self, who: str, path: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.tokens[who]}"} if who in self.tokens else {}
        return httpx.get(self.cluster.http_address + path, headers=headers, timeout=60, trust_env=False)

    def view(self, who: str, view: str) -> str:
        """Return the first data that the page receives."""
        headers = {"Authorization": f"Bearer {self.tokens[who]}"}
        url = f"{self.cluster.http_address}/v1/live/{view}"
        with httpx.stream("GET", url, headers=headers, timeout=60, trust_env=False) as answer:
            lines = answer.iter_lines()
            return next(next(lines) for line in lines if line == "event: view")

    def shown(self, who: str, path: str) -> str:
        if (who, path) not in self.seen:
            is_view = path.startswith("live ")
            self.seen[who, path] = self.view(who, path[5:]) if is_view else self.asked(who, path).text
        return self.seen[who, path]


@pytest.fixture(scope="module")
def world(cluster: LocalCluster) -> Iterator[World]:
    """Give ann a waiting query, a run, a report, and a file that is being written."""
    with TokenAdministration(f"unix:{cluster.directory}") as administration:
        tokens = {who: administration.create(who, 3600).token for who in ("ann", "bob")}
        me = administration_user(cluster)
        tokens["root"] = administration.create(me, 3600).token
        tokens["administrator"] = administration.create(me, 3600, administrator=True).token
    made = World(cluster, tokens, {})
    with PeaceFileSystem(cluster.http_address, token=tokens["ann"]) as files:
        query = {"name": NAME, "user": "ann", "command": ["count", SECRET], "checkpoint": ROOT}
        assert _post(made, "ann", "/v1/queries", query).is_success
        assert _post(
            made, "ann", "/v1/checkpoints/runs", {"path": f"{ROOT}-run", "user": "ann", "host": HOST, "pid": 4711}
        ).is_success
        report = {"location": f"{ROOT}-run", "user": "ann", "query": "q", "name": NAME, "host": HOST, "pid": 4711}
        assert _post(made, "ann", "/v1/checkpoints/reports", {**report, "state": "running"}).is_success
        with being_written(files):
            yield made


def administration_user(cluster: LocalCluster) -> str:
    with PeaceFileSystem(f"unix:{cluster.directory}") as files:
        return files.user


@contextmanager
def being_written(files: PeaceFileSystem) -> Iterator[None]:
    with files.open_for_writing("/of-ann/large", replication=1) as file:
        file.write(bytes(24 << 20))
        yield


def _post(world: World, who: str, path: str, body: dict[str, object]) -> httpx.Response:
    headers = {"Authorization": f"Bearer {world.tokens[who]}"}
    return httpx.post(world.cluster.http_address + path, headers=headers, json=body, timeout=60, trust_env=False)


def _rows(cluster: LocalCluster) -> list[tuple[str, str, set[str]]]:
    disk, port = str(cluster.directory / "datanode-1"), str(cluster.datanodes[0].readiness.data_port)
    queries = [("/v1/queries", word, ANNS) for word in (NAME, SECRET, ROOT)]
    return [
        *queries,
        *(("live queries", word, who) for _path, word, who in queries),
        ("live queries", HOST, ANNS),
        (f"/v1/queries/{NAME}", SECRET, ANNS),
        ("/v1/checkpoints/reports", HOST, ANNS),
        ("/v1/checkpoints/runs?path=/of-ann", HOST, ANNS),
        ("/v1/checkpoints/runs?path=/of-ann", "4711", ANNS),
        ("/v1/checkpoints/runs?path=/of-ann", f"{ROOT}-run", ALL),
        ("/v1/schedule", '"write_set"', ANNS),
        ("/v1/schedule", '"grants_in_flight":1', ALL),
        ("live peace", '"write_set"', ANNS),
        ("/v1/status", disk, MACHINES),
        ("/v1/status", f'"data_port":{port}', MACHINES),
        ("/v1/status", '"state":"alive"', ALL),
        ("live cluster", disk, MACHINES),
        ("live cluster", '"state":"alive"', ALL),
        ("/v1/topology", f'"data_port":{port}', MACHINES),
        ("live peace", f'"data_port":{port}', MACHINES),
        ("/v1/topology", '"rack"', ALL),
    ]


def test_each_caller_is_shown_what_the_table_says(world: World) -> None:
    wrong = []
    for path, word, who in _rows(world.cluster):
        shown = {each for each in ALL if word in world.shown(each, path)}
        if shown != who:
            wrong.append((path, word, sorted(shown), sorted(who)))
    assert not wrong


def test_query_of_another_is_refused_by_name_and_a_stranger_is_told_nothing(world: World) -> None:
    for path in (f"/v1/queries/{NAME}", f"/v1/queries/{NAME}/log"):
        assert world.asked("bob", path).status_code == 403
        assert SECRET not in world.asked("bob", path).text
    for path in {path for path, _word, _who in _rows(world.cluster) if path.startswith("/")}:
        assert world.asked("nobody", path).status_code == 401, path
    for path in ("/v1/chunks/1-1", "/v1/credentials", "/v1/tokens"):
        assert [world.asked(who, path).status_code for who in ("ann", "bob", "root")] == [403] * 3, path
    other = {"name": "mine", "user": "bob", "command": ["count"], "checkpoint": ROOT}
    refused = _post(world, "bob", "/v1/queries", other).text
    assert "another user's query" in refused
    assert NAME not in refused


def test_who_may_write_a_checkpoint_is_told_that_its_query_lives(world: World) -> None:
    """Otherwise the user might consider a live query dead, and roll back its checkpoint."""
    assert HOST not in world.asked("bob", "/v1/checkpoints/reports").text
    with PeaceFileSystem(world.cluster.http_address, token=world.tokens["ann"]) as files:
        files.set_permission(f"{ROOT}-run", 0o777)
        for path in ("/v1/checkpoints/reports", f"/v1/checkpoints/runs?path={ROOT}-run"):
            assert HOST in world.asked("bob", path).text, path
        files.set_permission(f"{ROOT}-run", 0o755)


def test_metrics_name_no_user_query_path_or_host_of_a_query(world: World) -> None:
    text = world.asked("nobody", "/metrics").text
    assert "peacefs_supervised_queries" in text
    assert not [word for word in (NAME, SECRET, ROOT, HOST, "ann") if f'"{word}"' in text or word in text.split()]


def test_names_that_are_believed_are_shown_everything(shared_cluster: LocalCluster) -> None:
    url = f"{shared_cluster.http_address}/v1/status?user=bob"
    status = json.loads(httpx.get(url, timeout=60, trust_env=False).text)
    assert {each["host"] for each in status["datanodes"]} == {"127.0.0.1"}
