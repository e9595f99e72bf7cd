"""`peacefs plan`: dry runs for a network file and for a real cluster."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.command import application

_EXAMPLES = Path(__file__).parents[2] / "examples"
_EXAMPLE = str(_EXAMPLES / "topology.toml")


def plan(*arguments: str) -> Result:
    return CliRunner().invoke(application, ["plan", *arguments], prog_name="peacefs", env={"COLUMNS": "80"})


def test_a_plan_for_a_file_is_a_table_that_needs_no_coordinator() -> None:
    shown = plan("--topology", _EXAMPLE, "--writer", "n1", "--chunks", "8", "--coordinator", "http://127.0.0.1:1")
    assert shown.exit_code == 0
    lines = [line.split() for line in shown.stdout.splitlines() if " → " in line]
    assert [line[4] for line in lines] == [str(chunk) for chunk in range(8)]
    assert all(line[3] == "n1" and line[5:].count("→") == 2 for line in lines)
    assert shown.stdout.splitlines()[-1].startswith("8 chunks in 2 steps, ")


def test_each_writer_has_its_own_and_a_stranger_enters_from_outside() -> None:
    two = json.loads(plan("--topology", _EXAMPLE, "--writer", "n1", "--writer", "n5", "--json").stdout)
    assert sorted(each["request"] for each in two["assignments"]) == [0, 1]
    assert two["unplaced"] == []
    assert " outside " in plan("--topology", str(_EXAMPLES / "rack-table.txt"), "--chunks", "2").stdout


def test_the_same_seed_gives_the_same_plan() -> None:
    first, again, other = (
        plan("--topology", _EXAMPLE, "--chunks", "4", "--seed", seed, "--json").stdout for seed in ("3", "3", "4")
    )
    assert first == again != other


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("--policy", "best"), 1, "there is no policy 'best'; there are random, paper"),
        (("--writer", "n99"), 1, "request 0: there is no server 'n99' for its writer"),
        (("--replication", "9"), 1, "request 0: 9 replicas need as many servers; there are 8"),
        (("--chunks", "0"), 2, "--chunks"),
        (("--chunks", "1000000"), 2, "--chunks"),
    ],
)
def test_plan_that_cannot_be_made_is_said(arguments: tuple[str, ...], status: int, said: str) -> None:
    refused = plan("--topology", _EXAMPLE, *arguments)
    assert refused.exit_code == status
    assert said in refused.stderr


def test_without_or_tools_the_policy_flow_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peacefs.peace.policies.flow", None)
    refused = plan("--topology", _EXAMPLE, "--policy", "flow")
    assert refused.exit_code == 1
    assert refused.stderr == "peacefs: plan: the policy flow needs OR-Tools: install peacefs[flow]\n"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("cluster"), datanodes=4, port=0) as running:
        yield running


@pytest.mark.cluster
@pytest.mark.parametrize("policy", ["express", "flow"])
def test_a_coordinator_plans_for_the_datanodes_that_are_alive(cluster: LocalCluster, policy: str) -> None:
    coordinator = ("--coordinator", cluster.http_address)
    nodes = {datanode.node for datanode in cluster.datanodes}
    writer = min(nodes)
    shown = plan(*coordinator, "--policy", policy, "--writer", writer, "--chunks", "3", "--json")
    pipelines = [each["pipeline"] for each in json.loads(shown.stdout)["assignments"]]
    assert len(pipelines) == 3
    assert all(len(pipeline) == 3 and set(pipeline) <= nodes for pipeline in pipelines)
    refused = plan(*coordinator, "--writer", "nobody")
    assert refused.exit_code == 1
    assert refused.stderr.startswith(
        "peacefs: plan: request 0: there is no server 'nobody' for its writer; there are "
    )
    assert refused.stderr.endswith("; a writer outside the cluster has no name\n")
