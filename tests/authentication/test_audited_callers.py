"""The audit log names the authenticated user, not the claimed one, and contains no credential."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from support.waiting import wait_until

from peacefs.client.control.token_administration import TokenAdministration
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import AccessDenied, Unauthenticated

pytestmark = pytest.mark.cluster


def test_audit_log_names_the_tokens_user_over_http_and_in_frames(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    options = ["--authentication=token", f"--audit-log={log}"]
    with LocalCluster(tmp_path / "c", datanodes=1, port=0, coordinator_options=options) as cluster:
        with TokenAdministration(f"unix:{cluster.directory}") as administration:
            token = administration.create("alice", 600).token
            client = administration.create_client("etl", 600)
        with PeaceFileSystem(cluster.http_address, token=token) as files:
            files.write("/user/alice/framed", b"x")
        with PeaceFileSystem(cluster.http_address, "root", token=token) as files, pytest.raises(AccessDenied):
            files.read("/user/alice/forged")
        with PeaceFileSystem(cluster.http_address, "root", token="") as files, pytest.raises(Unauthenticated):
            files.read("/user/alice/nobody")
        url = f"{cluster.http_address}/webhdfs/v1/user/alice/asked?op=MKDIRS&user.name=root"
        assert httpx.put(
            url, headers={"Authorization": f"Bearer {token}"}, trust_env=False, verify=False
        ).is_success
        assert httpx.put(url, trust_env=False, verify=False).status_code == 401
        form = {"client_id": client.id, "client_secret": client.secret, "grant_type": "client_credentials"}
        assert httpx.post(
            f"{cluster.http_address}/v1/oauth2/token", data=form, trust_env=False, verify=False
        ).is_success

        def told(path: str) -> set[tuple[str | None, str, bool]]:
            lines = [json.loads(line) for line in log.read_text().splitlines()]
            return {(line["ugi"], line["auth"], line["allowed"]) for line in lines if line.get("src") == path}

        alice = ("alice", "bearer", True)
        wait_until(lambda: told("/user/alice/asked") == {alice, (None, "none", False)}, "both requests are told")
        wait_until(lambda: told("/user/alice/framed") == {alice}, "the frames are told")
        wait_until(lambda: told("/user/alice/forged") == {("alice", "bearer", False)}, "the forgery is told")
        wait_until(lambda: told("/user/alice/nobody") == {(None, "none", False)}, "the stranger is told")
        for secret in (token, client.secret):
            assert secret not in log.read_text()
