"""Checkpoints over REST: the commands' information and runs, for permitted users, within a time limit."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any, cast

import httpx
import pytest
from click.testing import Result
from support import checkpoints as made

from peacefs.client.control.query_runs import CheckpointRuns
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.coordinator.operations.queries.query_reports import QueryReports
from peacefs.coordinator.operations.queries.query_runs import QueryRuns
from peacefs.coordinator.operations.viewer import Viewer
from peacefs.coordinator.side_process.checkpoint_inspector import CheckpointInspector
from peacefs.protocol.errors import BadRequest, Overloaded, PeacefsError, Unsupported

Peacefs = Callable[..., Result]


def ask(cluster: LocalCluster, what: str, **parameters: str) -> tuple[int, Any]:
    url = f"{cluster.http_address}/v1/checkpoints{what}"
    answer = httpx.get(url, params=parameters, timeout=180, trust_env=False, verify=False)
    return answer.status_code, answer.json()


@pytest.mark.cluster
def test_rest_tells_what_the_commands_tell_with_the_latest_run(cluster: LocalCluster, peacefs: Peacefs) -> None:
    address = f"--coordinator={cluster.http_address}"
    with (
        PeaceFileSystem(cluster.http_address) as files,
        CheckpointRuns(cluster.address) as runs,
    ):
        user = files.user
        for name, data in made.checkpoint(root="/seen/orders").files.items():
            files.write(name, data)
        for name, data in made.checkpoint(root="/seen/private/payments", batches=3).files.items():
            files.write(name, data)
        run = runs.begin("/seen/orders", host="here", pid=7)
        status, answer = ask(cluster, "", path="/seen", user=user)
        assert status == 200
        told = {each["root"]: each for each in answer["checkpoints"]}
        assert told["/seen/orders"].pop("run")["run"] == run.run
        assert told["/seen/private/payments"].pop("run") is None
        assert [each.pop("report") for each in told.values()] == [None, None]
        listed = map(json.loads, peacefs("ls", "--json", "/seen", address).stdout.splitlines())
        assert told == {each["root"]: each for each in listed}

        status, answer = ask(cluster, "/show", path=run.location, user=user)
        assert status == 200
        assert answer.pop("run")["host"] == "here"
        assert answer == json.loads(peacefs("show", "--json", "/seen/orders", address).stdout)

        files.set_permission("/seen/private", 0o700)
        status, answer = ask(cluster, "", path="/seen", user="stranger")
        assert (status, answer["RemoteException"]["exception"]) == (403, "AccessControlException")
        for path, expected in (("/seen/orders/offsets", 400), ("/none", 404)):
            status, answer = ask(cluster, "/show", path=path, user=user)
            assert status == expected, answer


@pytest.mark.cluster
def test_rest_opens_a_checkpoint_to_its_batches_and_judges_it(cluster: LocalCluster, peacefs: Peacefs) -> None:
    with PeaceFileSystem(cluster.http_address) as files:
        tree = made.checkpoint(root="/opened/orders", batches=4).files
        for name, data in tree.items():
            files.write(name, data)
        status, answer = ask(cluster, "/batches", path="/opened/orders", user=files.user)
        assert status == 200
        batches = answer["batches"]
        assert [each["batch"] for each in batches] == [0, 1, 2, 3]
        for each in batches:
            assert each["planned_ms"] and each["committed_ms"]
            sizes = {file["path"]: file["bytes"] for file in each["files"]}
            assert {f"offsets/{each['batch']}", f"commits/{each['batch']}"} <= sizes.keys()
            assert all(len(tree[f"/opened/orders/{path}"]) == size for path, size in sizes.items())
            of_state = {path: size for path, size in sizes.items() if path.startswith("state/")}
            assert of_state and each["state_bytes"] == sum(of_state.values())
        named = [file["path"] for each in batches for file in each["files"]]
        assert len(named) == len(set(named)), "a file is of one batch"

        address = f"--coordinator={cluster.http_address}"
        status, verdict = ask(cluster, "/verify", path="/opened/orders", user=files.user)
        assert (status, verdict["restarts"], verdict["last_good"]) == (200, True, 3)
        assert verdict == json.loads(peacefs("verify", "--json", "/opened/orders", address).stdout)
        files.delete("/opened/orders/commits/3")
        _status, answer = ask(cluster, "/batches", path="/opened/orders", user=files.user)
        assert answer["batches"][-1]["committed_ms"] is None
        assert ask(cluster, "/units", path="/opened", user=files.user) == (200, {"units": []})


ANN = Viewer("ann", sees_all=True)


def reports(program: str, **limits: float) -> CheckpointInspector:
    command = (sys.executable, "-c", program) if program else ()
    return CheckpointInspector(command, "http://none", cast(QueryRuns, None), cast(QueryReports, None), **limits)


def test_inspection_that_takes_too_long_is_ended_and_said() -> None:
    with pytest.raises(BadRequest, match=r"took more than 0.2 s and was ended; ask for a directory further down"):
        asyncio.run(reports("import time; time.sleep(60)", timeout_s=0.2).one("/a", ANN))


def test_one_at_a_time_and_the_others_are_to_come_again() -> None:
    async def both() -> list[object]:
        busy = reports("import time; time.sleep(60)", timeout_s=0.5, queue_timeout_s=0.1)
        return await asyncio.gather(busy.one("/a", ANN), busy.one("/a", ANN), return_exceptions=True)

    first, second = asyncio.run(both())
    assert isinstance(first, BadRequest)
    assert isinstance(second, Overloaded) and second.retriable


def test_a_process_that_fails_is_our_fault_and_one_that_is_not_there_is_told() -> None:
    with pytest.raises(PeacefsError, match="the coordinator's log says more"):
        asyncio.run(reports("raise SystemExit(3)").one("/a", ANN))
    with pytest.raises(Unsupported):
        asyncio.run(reports("").one("/a", ANN))
