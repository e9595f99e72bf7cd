"""`GET /v1/topology` and `POST /v1/plan`: dry runs are limited, clearly refused, and reserve nothing."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.long_runs import often
from support.play import Play
from support.status_sources import status_sources

from peacefs.coordinator.api.rest.app import build_rest, plan_body_bytes_max
from peacefs.coordinator.metadata.model import Mode
from peacefs.coordinator.operations.files import Files
from peacefs.coordinator.side_process.planner import Planner, carry_out, results
from peacefs.peace.dry_run import DryRunRequest, Task
from peacefs.protocol.errors import BadRequest, Overloaded, PeacefsError

_EXAMPLE = Path(__file__).parents[2] / "examples" / "topology.toml"


class Rest:
    """The REST API of a coordinator without files."""

    def __init__(self, play: Play) -> None:
        nothing = cast(Files, Mock())
        app = build_rest(nothing, status_sources(play))
        self._transport = httpx.ASGITransport(app, raise_app_exceptions=False)

    def ask(self, method: str, path: str, content: str | None = None) -> httpx.Response:
        async def ask() -> httpx.Response:
            headers = {"Content-Type": "application/json"}
            async with httpx.AsyncClient(transport=self._transport, base_url="http://here") as client:
                return await client.request(method, path, content=content, headers=headers)

        return asyncio.run(ask())

    def get(self, path: str) -> Any:
        return self.ask("GET", path).json()

    def plan(self, **changes: Any) -> httpx.Response:
        return self.ask("POST", "/v1/plan", json.dumps(body(**changes)))


@pytest.fixture
def two_racks(play: Play) -> Play:
    play.join("n1", "n2", "n3")
    play.join("n4", "n5", "n6", rack="/rack-2")
    play.open_for_business()
    return play


@pytest.fixture
def rest(two_racks: Play) -> Rest:
    return Rest(two_racks)


def body(**changes: Any) -> dict[str, Any]:
    requests = [{"writer": "n1", "replication": 3, "chunks": 8}]
    return {"policy": "express", "seed": 7, "requests": requests} | changes


def refusal(answer: httpx.Response) -> str:
    assert answer.status_code == 400
    remote = answer.json()["RemoteException"]
    assert remote["exception"] == "IllegalArgumentException"
    return str(remote["message"])


def test_the_topology_shows_servers_links_capacities_and_what_is_on_its_way(rest: Rest, two_racks: Play) -> None:
    pipeline = [node.id for node in two_racks.cluster.place(two_racks.now_s, 1, None, 3, frozenset(), 60.0)]
    shown = rest.get("/v1/topology")
    assert shown["racks"] == [
        {"rack": "/rack-1", "servers": ["n1", "n2", "n3"]},
        {"rack": "/rack-2", "servers": ["n4", "n5", "n6"]},
    ]
    streams = {server["server"]: server["streams"] for server in shown["servers"]}
    assert streams == {f"n{n}": int(f"n{n}" in pipeline) for n in range(1, 7)}
    assert shown["servers"][0] == {
        **{"server": "n1", "host": "n1.example", "data_port": 9866, "rack": "/rack-1", "described": False},
        **{"network_bytes_s": 125e6},
        **{"disk_bytes_s": 45e6, "slots": 2, "streams": streams["n1"]},
    }
    links = {(link["a"], link["b"]): link for link in shown["links"]}
    assert len(links) == 8
    assert links["/rack-1", "/"]["bytes_s"] == 125e6 and links["/rack-1", "/"]["capacity_streams"] == 6
    assert sum(link["streams_b_to_a"] for (a, _), link in links.items() if a in pipeline) == 3


def test_browser_at_the_coordinator_is_told_what_is_there(rest: Rest) -> None:
    answer = rest.ask("GET", "/")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    for place in ("/v1/docs", "/v1/status", "/metrics", "/webhdfs/v1/"):
        assert place in answer.text
    assert rest.ask("HEAD", "/").status_code == 200
    lost = rest.ask("GET", "/nothing")
    assert lost.status_code == 404
    assert lost.json()["RemoteException"]["message"] == "Not Found: GET /nothing; / says what is here"


def test_without_datanodes_the_network_is_empty_and_there_is_nothing_to_plan(play: Play) -> None:
    rest = Rest(play)
    assert rest.get("/v1/topology")["servers"] == []
    answer = rest.plan()
    assert answer.json()["RemoteException"]["peacefsCode"] == "NoDatanodes"


@pytest.mark.parametrize("policy", ["random", "paper", "flow", "express"])
def test_a_plan_places_every_chunk_once_and_reserves_nothing(rest: Rest, two_racks: Play, policy: str) -> None:
    requests = [{"writer": "n1", "replication": 3, "chunks": 8}, {"writer": "n5", "replication": 2, "chunks": 3}]
    plan = rest.plan(policy=policy, requests=requests).json()
    assert plan["unplaced"] == []
    chunks = sorted((each["request"], each["chunk"]) for each in plan["assignments"])
    assert chunks == [(0, chunk) for chunk in range(8)] + [(1, chunk) for chunk in range(3)]
    step_ends: dict[int, float] = {}
    for each in plan["assignments"]:
        assert list(each) == ["request", "chunk", "pipeline", "step", "start_s", "end_s"]
        assert len(set(each["pipeline"])) == requests[each["request"]]["replication"]
        assert each["end_s"] > each["start_s"] == step_ends.get(each["step"] - 1, 0.0)
        step_ends[each["step"]] = max(step_ends.get(each["step"], 0.0), each["end_s"])
    assert two_racks.cluster.pipelines() == []


def test_datanodes_that_are_to_leave_write_but_get_no_replicas(rest: Rest, two_racks: Play) -> None:
    two_racks.cluster.set_mode("n1", Mode.DECOMMISSION)
    plan = rest.plan(policy="random").json()
    assert {node for each in plan["assignments"] for node in each["pipeline"]} == {"n2", "n3", "n4", "n5", "n6"}
    six = [{"writer": "n1", "replication": 6, "chunks": 1}]
    assert refusal(rest.plan(requests=six)) == "request 0: 6 replicas need as many servers; there are 5"


def test_the_same_seed_gives_the_same_plan(rest: Rest) -> None:
    first, again, other = (rest.plan(seed=seed).json() for seed in (7, 7, 8))
    assert first == again != other


def test_another_network_can_be_given_as_text_or_as_a_structure(rest: Rest) -> None:
    as_text = rest.plan(topology=_EXAMPLE.read_text()).json()
    structure = {
        "switch": [{"name": "/r1"}, {"name": "/r2", "uplink": "/r1"}],
        "servers": [{"rack": "/r1", "names": ["n1", "n2"]}, {"rack": "/r2", "names": ["n9"]}],
    }
    as_structure = rest.plan(topology=structure).json()
    assert {node for each in as_text["assignments"] for node in each["pipeline"]} <= {f"n{n}" for n in range(1, 9)}
    assert {node for each in as_structure["assignments"] for node in each["pipeline"]} == {"n1", "n2", "n9"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"policy": "best"}, "there is no policy 'best'; there are random, paper"),
        ({"requests": []}, "body.requests: List should have at least 1 item"),
        ({"requests": [{"writer": "n1", "chunks": 0}]}, "body.requests.0.chunks: "),
        ({"requests": [{"writer": "n1", "chunks": 1_000_000}]}, "body.requests.0.chunks: "),
        ({"requests": [{"writer": "n1", "chunks": 15_000}] * 2}, "30000 chunks are over the limit of 20000"),
        ({"requests": [{"writer": "n1", "chunks": 1, "replication": 0}]}, "body.requests.0.replication: "),
        (
            {"requests": [{"writer": "n1", "chunks": 1, "replication": 7}]},
            "request 0: 7 replicas need as many servers; there are 6",
        ),
        ({"requests": [{"writer": "n99", "chunks": 1}]}, "request 0: there is no server 'n99' for its writer"),
        ({"topology": "[[switch]]\nname = 3\n"}, "line 2: switch: "),
        ({"topology": {"switch": [{"name": 3}]}}, "switch: expected str, got int"),
        ({"topology": {"switch": [{"name": "a"}]}}, "there are no servers to plan for"),
        ({"topology": "x = " + "[" * 5000}, "not TOML"),
        ({"topology": {"switch": [{"name": "\ud800"}]}}, "topology: "),
        ({"topology": "#" * plan_body_bytes_max}, "a body of more than 1048576 bytes is over the limit"),
        ({"seed": 2**64}, "body.seed: "),
        ({"policies": 1}, "body.policies: "),
    ],
)
def test_plan_that_cannot_be_made_is_refused_with_the_reason(
    rest: Rest, changes: dict[str, Any], said: str
) -> None:
    answer = rest.plan(**changes)
    assert refusal(answer).startswith(said)


def test_a_network_beyond_the_limits_is_refused(rest: Rest) -> None:
    servers = {"switch": [{"name": "a"}], "servers": [{"rack": "a", "names": [f"n{n}" for n in range(2001)]}]}
    assert "2001 servers are over the limit of 2000" in refusal(rest.plan(topology=servers))
    names = [{"name": "a"}, *({"name": f"s{n}", "uplink": "a"} for n in range(250))]
    switches = {"switch": names, "servers": [{"rack": "a", "names": ["n1"]}]}
    assert "251 switches are over the limit" in refusal(rest.plan(topology=switches))


def test_both_routes_are_in_the_api_description(rest: Rest) -> None:
    described = rest.get("/v1/openapi.json")
    assert "/v1/topology" in described["paths"]
    plan = described["paths"]["/v1/plan"]["post"]
    assert plan["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("/PlanBody")
    assert plan["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].endswith("/DryRunPlan")
    assert {"requests", "policy", "seed", "topology"} == set(
        described["components"]["schemas"]["PlanBody"]["properties"]
    )


def test_the_api_description_refers_to_nothing_that_is_not_in_it(rest: Rest) -> None:
    described = rest.get("/v1/openapi.json")
    named = set(re.findall(r'"#/components/schemas/([^"]*)"', json.dumps(described)))
    assert "WrittenChunk" in named
    assert named <= set(described["components"]["schemas"])


def test_an_error_is_told_as_the_api_description_says(rest: Rest) -> None:
    """All errors are RemoteExceptions, also for malformed bodies, for which the framework would answer 422."""
    described = rest.get("/v1/openapi.json")
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            errors = set(operation["responses"]) - {"200", "204"}
            assert errors == {"default"}, f"{method} {path}"
    schema = described["components"]["schemas"]["RemoteException"]
    answer = rest.plan(policies=1)
    assert answer.status_code == 400
    told = answer.json()
    assert set(told) == set(schema["required"])
    assert set(told["RemoteException"]) == set(schema["properties"]["RemoteException"]["properties"])


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_TABLES = st.dictionaries(
    st.sampled_from(["shape", "root", "defaults", "disk", "switch", "servers", "link"]), _JSON
)


@settings(max_examples=often(24, 60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.fixed_dictionaries(
        {},
        optional={
            "policy": _JSON,
            "seed": _JSON,
            "requests": _JSON
            | st.lists(st.fixed_dictionaries({"writer": _JSON, "replication": _JSON, "chunks": _JSON})),
            "topology": _JSON | _TABLES,
        },
    )
)
def test_whatever_is_sent_the_answer_is_a_plan_or_a_refusal(
    rest: Rest, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    """Run in this process, because only parsing is tested here."""

    async def at_once(_: Planner, task: bytes) -> object:
        return results.decode(carry_out(task))

    monkeypatch.setattr(Planner, "_in_a_process", at_once)
    answer = rest.plan(**changes)
    if answer.status_code == 200:
        assert set(answer.json()) == {"assignments", "unplaced"}
    else:
        refusal(answer)


NETWORK = {"switch": [{"name": "/r"}], "servers": [{"rack": "/r", "names": ["a"]}]}
TASK = Task("express", 0, [DryRunRequest(None, 1, 4)], NETWORK)


def test_a_dry_run_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    started = _remember_processes(monkeypatch)
    with pytest.raises(BadRequest, match=r"planning took more than 0.01 s and was ended"):
        asyncio.run(Planner(timeout_s=0.01).plan(TASK))
    assert [process.returncode for process in started] == [-9]


def _remember_processes(monkeypatch: pytest.MonkeyPatch) -> list[asyncio.subprocess.Process]:
    started: list[asyncio.subprocess.Process] = []
    start = asyncio.create_subprocess_exec

    async def remember(*arguments: Any, **options: Any) -> asyncio.subprocess.Process:
        started.append(await start(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", remember)
    return started


def test_dry_runs_wait_for_each_other_but_not_for_ever() -> None:
    async def both() -> list[object]:
        patient, planner = Planner(), Planner(queue_timeout_s=0.0)
        first, second = await asyncio.gather(patient.plan(TASK), patient.plan(TASK))
        assert first == second
        return await asyncio.gather(planner.plan(TASK), planner.plan(TASK), return_exceptions=True)

    _, refused = asyncio.run(both())
    assert isinstance(refused, Overloaded)


def test_a_dry_run_that_fails_is_our_fault_and_says_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(PeacefsError, match="the coordinator's log says more"):
        asyncio.run(Planner().plan(TASK))


def test_the_process_reads_a_task_and_writes_a_plan() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "peacefs.coordinator.side_process.planner"],
        input=json.dumps(
            {
                "policy": "random",
                "seed": 1,
                "requests": [{"writer": "a", "replication": 1, "chunks": 1}],
                "topology": NETWORK,
            }
        ).encode(),
        capture_output=True,
        check=True,
    )
    (assignment,) = json.loads(done.stdout)["plan"]["assignments"]
    assert assignment["pipeline"] == ["a"]
    assert done.stderr == b""


def test_each_operation_of_rest_is_described_and_in_a_group(two_racks: Play) -> None:
    """Calls of our own clients are in a group of their own, and no operation of people is."""
    app = build_rest(cast(Files, Mock()), status_sources(two_racks))
    described = app.openapi()
    groups = {each["name"] for each in described["tags"]}
    for path, operations in described["paths"].items():
        for operation in operations.values():
            (group,) = operation["tags"]
            assert group in groups
            assert operation.get("description"), path
    group_by_path = {path: next(iter(each.values()))["tags"][0] for path, each in described["paths"].items()}
    assert group_by_path["/v1/plan"] == group_by_path["/v1/schedule/recurrences"] == "scheduling"
    assert group_by_path["/v1/files/complete"] == group_by_path["/v1/topology/probes"] == "internal"
    assert group_by_path["/v1/files/truncate"] == group_by_path["/v1/fsck"] == "files"
