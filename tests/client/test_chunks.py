"""`peacefs chunk explain` and `GET /v1/chunks/<id>` on a real cluster."""

from __future__ import annotations

import getpass
import json
from collections.abc import Callable

import httpx
import pytest
from click.testing import Result
from typer.testing import CliRunner

from peacefs.client.command_line.application import application
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import AccessDenied
from peacefs.protocol.ids import show
from peacefs.protocol.values.chunk_explanation import ChunkExplanation

pytestmark = pytest.mark.cluster

WaitUntil = Callable[..., None]


def explain(cluster: LocalCluster, *arguments: str) -> Result:
    at = f"--coordinator={cluster.http_address}"
    return CliRunner().invoke(application, ["chunk", "explain", at, *arguments], prog_name="peacefs")


def chunk_of(cluster: LocalCluster, path: str) -> str:
    """Return the chunk's id from the layout for readers."""
    opened = httpx.post(f"{cluster.http_address}/v1/files/open", json={"path": path, "user": getpass.getuser()})
    (chunk,) = opened.json()["layout"]["chunks"]
    return show(chunk[0])


def test_chunk_of_a_file_is_explained_with_its_path_and_its_replicas(
    shared_cluster: LocalCluster, superuser: PeaceFileSystem, home: str, wait_until: WaitUntil
) -> None:
    superuser.write(f"{home}/file", b"data")
    chunk = chunk_of(shared_cluster, f"{home}/file")

    def told() -> ChunkExplanation:
        return superuser.explain_chunk(chunk)

    wait_until(lambda: [each.state for each in told().replicas] == ["live"] * 3, "every datanode confirmed it")
    explained = told()
    assert explained.chunk == chunk and explained.files == [f"{home}/file"] and explained.length == 4
    assert len(explained.replicas) == len(shared_cluster.datanodes) == 3
    assert {replica.node for replica in explained.replicas} == {each.node for each in shared_cluster.datanodes}
    # A datanode's heartbeat may come before or after the completion of the file.
    usual = {"attested", "reported", "reported_unreferenced", "referenced"}
    assert {event.event for event in explained.history} <= usual
    assert {event.node for event in explained.history} == {each.node for each in shared_cluster.datanodes}

    shown = explain(shared_cluster, chunk)
    assert shown.exit_code == 0
    lines = shown.stdout.splitlines()
    assert lines[0].startswith(f"chunk {chunk}: referenced, version ")
    assert lines[1:3] == ["files:", f"  {home}/file"] and "pending: none" in lines
    (as_json,) = explain(shared_cluster, "--json", chunk).stdout.splitlines()
    assert json.loads(as_json)["files"] == [f"{home}/file"]


def test_chunk_of_a_deleted_file_is_explained_as_freed(
    shared_cluster: LocalCluster, superuser: PeaceFileSystem, home: str
) -> None:
    superuser.write(f"{home}/gone", b"data")
    chunk = chunk_of(shared_cluster, f"{home}/gone")
    superuser.delete(f"{home}/gone")
    explained = superuser.explain_chunk(chunk)
    assert explained.standing in ("freed", "unreferenced") and explained.files == []


@pytest.mark.parametrize(
    ("chunk", "said"),
    [
        ("7fffff-1", "nothing is known of chunk 7fffff-1: no file refers to it and no datanode holds it"),
        ("one", "'one' is no chunk id: one is like 1-2a, as fsck shows them"),
        ("../status", "'../status' is no chunk id: one is like 1-2a, as fsck shows them"),
        ("x" * 9999, f"'{'x' * 40}' is no chunk id: one is like 1-2a, as fsck shows them"),
    ],
)
def test_chunk_that_cannot_be_explained_is_refused_in_a_line(
    shared_cluster: LocalCluster, chunk: str, said: str
) -> None:
    refused = explain(shared_cluster, chunk)
    assert refused.exit_code == 1 and refused.stdout == ""
    assert refused.stderr.splitlines() == [f"peacefs: chunk: {said}"]


def test_chunk_is_explained_to_superusers_alone(shared_cluster: LocalCluster, files: PeaceFileSystem) -> None:
    with pytest.raises(AccessDenied):
        files.explain_chunk("1-1")
    refused = httpx.get(f"{shared_cluster.http_address}/v1/chunks/1-1", params={"user": files.user})
    assert refused.status_code == 403
    for chunk, status in (("7fffff-1", 404), ("one", 400)):
        answer = httpx.get(f"{shared_cluster.http_address}/v1/chunks/{chunk}", params={"user": getpass.getuser()})
        assert answer.status_code == status and answer.json()["RemoteException"]["message"]


def test_chunk_explanation_is_described_in_full(shared_cluster: LocalCluster) -> None:
    described = httpx.get(f"{shared_cluster.http_address}/v1/openapi.json").json()
    answer = described["paths"]["/v1/chunks/{chunk}"]["get"]["responses"]["200"]
    schema = answer["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    schemas = described["components"]["schemas"]
    assert set(schemas[schema]["properties"]) == set(ChunkExplanation.__struct_fields__)
    assert {"ReplicaExplanation", "ChunkEvent", "Pending"} <= schemas.keys()
