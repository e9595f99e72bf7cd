"""A cluster with authentication and a standby: tokens work, and can be fetched, at both coordinators."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from support.etcd import etcd_binary
from support.waiting import wait_until

from peacefs.client.control.token_administration import TokenAdministration
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.client.local_cluster.member_process import LocalMember

pytestmark = pytest.mark.cluster


def address_of(member: LocalMember) -> str:
    return f"http://{member.readiness.http_host}:{member.readiness.http_port}"


def status_of(member: LocalMember, token: str) -> int:
    """Request the status for operators."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return httpx.get(
        f"{address_of(member)}/v1/status", headers=headers, timeout=60, trust_env=False, verify=False
    ).status_code


def listing_of(member: LocalMember, token: str) -> httpx.Response:
    headers = {"authorization": f"Bearer {token}"}
    url = f"{address_of(member)}/webhdfs/v1/?op=LISTSTATUS"
    return httpx.get(url, headers=headers, timeout=60, trust_env=False, verify=False)


def fetch(member: LocalMember, client_id: str, secret: str) -> httpx.Response:
    """Fetch a token as Hadoop's `CredentialBasedAccessTokenProvider` does."""
    form = {"grant_type": "client_credentials", "client_id": client_id, "client_secret": secret}
    return httpx.post(
        f"{address_of(member)}/v1/oauth2/token", data=form, timeout=60, trust_env=False, verify=False
    )


def test_tokens_are_good_at_the_standby_and_at_the_next_leader(tmp_path: Path) -> None:
    etcd_binary()
    options = ["--authentication=token"]
    with LocalCluster(tmp_path / "up", 1, 0, coordinator_options=options, standby=True) as cluster:
        assert cluster.standby is not None
        leader, standby = cluster.coordinator, cluster.standby
        with TokenAdministration(f"unix:{cluster.directory / 'coordinator'}") as administration:
            ann = administration.create("ann", 3600)
            eve = administration.create("eve", 3600)
            administration.revoke(eve.id)
            client = administration.create_client("ann", 3600)
        assert status_of(standby, "") == 401
        wait_until(lambda: status_of(standby, ann.token) == 200, "the standby knows the key")
        wait_until(lambda: status_of(standby, eve.token) == 401, "and what was revoked")
        # Hadoop knows one address for tokens, so the leader answers through the standby.
        fetched = fetch(standby, client.id, client.secret)
        assert fetched.status_code == 200, fetched.text
        assert fetch(standby, client.id, "wrong").status_code == 401
        token = fetched.json()["access_token"]
        assert listing_of(leader, token).is_success

        leader.kill()
        wait_until(lambda: listing_of(standby, ann.token).is_success, "the standby leads")
        assert listing_of(standby, token).is_success
        assert listing_of(standby, eve.token).status_code == 401
        assert fetch(standby, client.id, client.secret).status_code == 200
        with PeaceFileSystem(address_of(standby), token=ann.token) as files:
            files.write("/of-ann", b"data", replication=1)
            assert files.read("/of-ann") == b"data"
