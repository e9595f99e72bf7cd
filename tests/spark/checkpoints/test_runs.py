"""Runs by command and from Python; paths with a run in a checkpoint still count as its own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest
from click.testing import Result
from support import checkpoints as made

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.coordinator.namespace.checkpoint_root import checkpoint_root
from peacefs.protocol.errors import AccessDenied, BadRequest, RunSuperseded
from peacefs.spark_connector.checkpoints.formats.operators import location_of
from peacefs.spark_connector.runs import begin_run

Peacefs = Callable[..., Result]


def test_a_path_of_a_run_is_the_checkpoints_own() -> None:
    of_run = "webhdfs://here:9870/ck/orders/.run-3-1f/state/0/_stateSchema/default/0_x"
    assert location_of(of_run).path == "/ck/orders/state/0/_stateSchema/default/0_x"
    assert (
        checkpoint_root("/ck/orders/.run-3-1f/offsets/7")
        == checkpoint_root("/ck/orders/offsets/7")
        == "/ck/orders"
    )


@pytest.mark.cluster
def test_a_run_is_begun_listed_and_ended(cluster: LocalCluster, peacefs: Peacefs) -> None:
    address = f"--coordinator={cluster.http_address}"
    begun = peacefs("begin", "/runs/orders", address, "--host=driver-1", "--pid=77")
    assert begun.exit_code == 0, begun.stderr
    location = begun.stdout.strip()
    assert location.startswith(f"{cluster.webhdfs_uri}/runs/orders/.run-")
    younger = begin_run(f"{cluster.webhdfs_uri}/runs/orders")
    other = begin_run(f"{cluster.webhdfs_uri}/runs/a", pid=0)
    listed = peacefs("runs", "/runs", address).stdout.splitlines()
    assert [line.split()[-1] for line in listed] == ["PATH", "/runs/a", "/runs/orders"]
    assert f"pid {os.getpid()}" in listed[2] and "pid" not in listed[1]
    younger.end()
    records = [json.loads(line) for line in peacefs("runs", "/runs", "--json", address).stdout.splitlines()]
    assert [(record["run"], record["ended_ms"] is None) for record in records] == [
        (other.number, True),
        (younger.number, False),
    ]
    with PeaceFileSystem(cluster.http_address) as files:
        with pytest.raises(RunSuperseded, match=f"run {younger.number} has taken over"):
            files.write(f"{location.removeprefix(cluster.webhdfs_uri)}/offsets/0", b"")
        files.write(f"{younger.location.removeprefix(cluster.webhdfs_uri)}/offsets/0", b"")
        assert [entry.path for entry in files.list("/runs/orders")] == ["/runs/orders/offsets"]


@pytest.mark.cluster
def test_user_who_may_not_write_begins_no_run(cluster: LocalCluster, peacefs: Peacefs) -> None:
    with PeaceFileSystem(cluster.http_address) as files:
        files.mkdirs("/closed/orders", permission=0o700)
    root = f"{cluster.webhdfs_uri}/closed/orders"
    begin_run(root)
    with pytest.raises(AccessDenied):
        begin_run(root, user="stranger")
    for wrong in (f"{cluster.webhdfs_uri}/", begin_run(root).location):
        with pytest.raises(BadRequest, match="cannot be a checkpoint root"):
            begin_run(wrong)
    address = f"--coordinator={cluster.http_address}"
    assert "/closed/orders" in peacefs("runs", address).stdout
    failed = peacefs("runs", "file:///x", address)
    assert (failed.exit_code, "a local file system cannot" in failed.stderr) == (1, True)


@pytest.mark.cluster
def test_a_checkpoint_that_runs_have_written_is_whole_and_needs_none_of_them(
    cluster: LocalCluster, peacefs: Peacefs
) -> None:
    run = begin_run(f"{cluster.webhdfs_uri}/written/orders")
    below = run.location.removeprefix(cluster.webhdfs_uri)
    with PeaceFileSystem(cluster.http_address) as files:
        for path, data in made.checkpoint(root=below).files.items():
            files.write(path, data)
    address = f"--coordinator={cluster.http_address}"
    for name in ("/written/orders", below):
        verified = peacefs("verify", name, address)
        assert (verified.exit_code, "is good" in verified.stdout) == (0, True), verified.output
    assert peacefs("ls", "/written", address).stdout.split()[-1] == "/written/orders"
    assert peacefs("fork", below, "/written/trial", address).exit_code == 0
    with PeaceFileSystem(cluster.http_address) as files:
        files.delete("/written/orders", recursive=True)
    assert peacefs("verify", "/written/trial", address).exit_code == 0
