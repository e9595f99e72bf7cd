"""Administration: only superusers may change a cluster, and everyone may look at it."""

from __future__ import annotations

import httpx
import pytest

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import AccessDenied

pytestmark = pytest.mark.cluster

CHANGES = [
    "datanodes/{node}/decommission",
    "datanodes/{node}/maintenance?hours=1",
    "datanodes/{node}/recommission",
    "metadata/backup",
    "metadata/release-floor",
    "balancer",
    "balancer/run/renew",
    "balancer/run/cancel",
    "topology/reload",
    "topology/probes",
    "topology/probes/forget",
]


@pytest.mark.parametrize("route", CHANGES)
@pytest.mark.parametrize("user", [None, "alice"])
def test_changes_of_the_cluster_are_for_superusers(
    shared_cluster: LocalCluster, route: str, user: str | None
) -> None:
    url = httpx.URL(f"{shared_cluster.http_address}/v1/{route.format(node='any')}")
    refused = httpx.post(url.copy_merge_params({"user": user} if user else {}))
    said = refused.json()["RemoteException"]
    assert refused.status_code == 403
    assert said["javaClassName"] == "org.apache.hadoop.security.AccessControlException"
    assert said["message"] == f"Access denied for user {user or 'dr.who'}. Superuser privilege is required"


def test_administration_is_allowed_to_who_runs_the_coordinator(
    superuser: PeaceFileSystem, files: PeaceFileSystem
) -> None:
    node = files.cluster_status()["datanodes"][0]["node"]
    with pytest.raises(AccessDenied, match="Access denied for user alice"):
        files.decide_about_datanode(node, "decommission")
    assert superuser.decide_about_datanode(node, "recommission")["service"] == "in service"


def test_fsck_is_for_whoever_may_read(files: PeaceFileSystem, home: str) -> None:
    files.write(f"{home}/f", b"1", replication=1)
    files.set_permission(f"{home}/f", 0o600)
    assert [page.tally.files for page in files.inspect(home)] == [1]
    with (
        PeaceFileSystem(files.address, user="bob") as bob,
        pytest.raises(AccessDenied, match="Permission denied: user=bob, access=READ"),
    ):
        list(bob.inspect(home))
