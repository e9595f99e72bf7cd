"""A cluster that authenticates callers, as processes: over HTTP, in frames, at datanodes, by commands."""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import pytest
from support.waiting import wait_until

from peacefs.client.control.query_runs import CheckpointRuns
from peacefs.client.control.token_administration import TokenAdministration
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import AccessDenied, BadRequest, PeacefsError, Unauthenticated
from peacefs.protocol.limits import chunk_bytes_max
from peacefs.protocol.messages import Message
from peacefs.runtime.connections import SocketConnection

pytestmark = pytest.mark.cluster
#: One message of each kind, and one of each kind that names a user.
CLOSED = [
    ("GET", "/webhdfs/v1/?op=LISTSTATUS&user.name=root"),
    ("GET", "/webhdfs/v1/?op=GETSERVERDEFAULTS"),
    ("PUT", "/webhdfs/v1/x?op=MKDIRS&user.name=root"),
    ("DELETE", "/webhdfs/v1/x?op=DELETE&recursive=true&user.name=root"),
    ("GET", "/webhdfs/v1/?op=LISTSTATUS&doas=root"),
    ("GET", "/v1/status"),
    ("GET", "/v1/openapi.json"),
    ("GET", "/v1/schedule"),
    ("GET", "/v1/schedule/recurrences"),
    ("GET", "/v1/schedule/phases"),
    ("POST", "/v1/schedule/phases"),
    ("GET", "/v1/fsck?user=root"),
    ("POST", "/v1/metadata/backup?user=root"),
    ("POST", "/v1/tokens"),
    ("POST", "/v1/files/create"),
    ("GET", "/v1/nothing"),
    ("GET", "/metrics/"),
]


@pytest.fixture(scope="module")
def alice(cluster: LocalCluster) -> str:
    with TokenAdministration(f"unix:{cluster.directory}") as administration:
        return administration.create("alice", 3600).token


@pytest.fixture(scope="module")
def bob(cluster: LocalCluster) -> str:
    with TokenAdministration(f"unix:{cluster.directory}") as administration:
        return administration.create("bob", 3600).token


@pytest.fixture
def http(cluster: LocalCluster) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=cluster.http_address, trust_env=False, verify=False, timeout=60) as http:
        yield http


def shown(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize(("method", "target"), CLOSED, ids=[target for _, target in CLOSED])
def test_caller_without_a_token_is_told_nothing(http, method, target):
    answer = http.request(method, target)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    remote = answer.json()["RemoteException"]
    assert remote["javaClassName"] == "org.apache.hadoop.security.AccessControlException"
    assert "peacefs token create" in remote["message"]


def test_metrics_and_greeting_are_open_and_name_no_user_and_no_path(cluster, http, alice):
    with PeaceFileSystem(cluster.http_address, token=alice) as files:
        files.write("/user/alice/unmistakable", b"x")
    for path in ("/", "/metrics"):
        answer = http.get(path)
        assert answer.status_code == 200
        assert "unmistakable" not in answer.text and "alice" not in answer.text


def test_identity_is_the_tokens_whatever_name_is_sent(http, alice):
    made = http.put("/webhdfs/v1/user/alice/d?op=MKDIRS&user.name=root", headers=shown(alice))
    assert made.json() == {"boolean": True}
    status = http.get("/webhdfs/v1/user/alice/d?op=GETFILESTATUS&user.name=bob", headers=shown(alice)).json()
    assert status["FileStatus"]["owner"] == "alice"
    refused = http.put("/webhdfs/v1/user/alice/d?op=SETOWNER&owner=bob&user.name=root", headers=shown(alice))
    assert refused.status_code == 403
    home = http.get("/webhdfs/v1/?op=GETHOMEDIRECTORY&user.name=root", headers=shown(alice)).json()
    assert home == {"Path": "/user/alice"}


def test_impersonation_is_for_administrators(http, administration, alice):
    assert http.get("/webhdfs/v1/?op=GETHOMEDIRECTORY&doas=bob", headers=shown(alice)).status_code == 403
    root = administration.create(getpass.getuser(), 600, administrator=True).token
    as_bob = http.get("/webhdfs/v1/?op=GETHOMEDIRECTORY&doas=bob", headers=shown(root))
    assert as_bob.json() == {"Path": "/user/bob"}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/files/create", {"path": "/user/alice/x", "user": "root"}),
        ("POST", "/v1/files/open", {"path": "/user/alice/x", "user": "root"}),
        ("POST", "/v1/files/recover-lease", {"path": "/user/alice/x", "user": "root"}),
        ("POST", "/v1/copies", {"source": "/user", "target": "/y", "user": "root"}),
        ("POST", "/v1/exchanges", {"pairs": [["/a", "/b"]], "user": "root"}),
        ("POST", "/v1/snapshots/restore", {"path": "/a", "snapshot": "s", "user": "root"}),
        ("POST", "/v1/checkpoints/runs", {"path": "/a", "host": "h", "user": "root"}),
        ("POST", "/v1/checkpoints/runs/end", {"location": "/a", "user": "root"}),
        ("POST", "/v1/queries", {"name": "q", "command": ["c"], "user": "root"}),
        ("GET", "/v1/fsck?user=root", None),
        ("GET", "/v1/checkpoints/runs?user=root", None),
        ("GET", "/v1/checkpoints/reports?user=root", None),
        ("GET", "/v1/checkpoints?user=root", None),
        ("POST", "/v1/queries/q/stop?user=root", None),
    ],
)
def test_rest_refuses_whoever_names_another(http, alice, method, path, body):
    answer = http.request(method, path, json=body, headers=shown(alice))
    assert answer.status_code == 403
    assert "may not act as root" in answer.json()["RemoteException"]["message"]


ADMINISTRATION = [
    ("POST", "/v1/datanodes/x/decommission"),
    ("POST", "/v1/datanodes/x/maintenance?hours=1"),
    ("POST", "/v1/datanodes/x/recommission"),
    ("POST", "/v1/datanodes/x/disks/balance"),
    ("POST", "/v1/balancer"),
    ("POST", "/v1/balancer/r/renew"),
    ("POST", "/v1/balancer/r/cancel"),
    ("POST", "/v1/metadata/backup"),
    ("POST", "/v1/metadata/release-floor"),
    ("POST", "/v1/topology/reload"),
    ("POST", "/v1/topology/probes"),
    ("POST", "/v1/topology/probes/forget"),
    ("PUT", "/v1/schedule/policy"),
    ("POST", "/v1/tokens"),
    ("GET", "/v1/tokens"),
    ("POST", "/v1/tokens/rotate-keys"),
    ("POST", "/v1/tokens/revoke/x"),
    ("POST", "/v1/tokens/clients"),
    ("GET", "/v1/tokens/clients"),
    ("DELETE", "/v1/tokens/clients/x"),
]


@pytest.mark.parametrize(("method", "path"), ADMINISTRATION, ids=[path for _, path in ADMINISTRATION])
def test_administration_asks_for_an_administrators_token(http, administration, alice, method, path):
    superusers = administration.create(getpass.getuser(), 600).token
    for token in (alice, superusers):
        answer = http.request(
            method, path, params={"user": "root"} if token == alice else None, headers=shown(token)
        )
        assert answer.status_code == 403
        assert "administrator's token" in answer.json()["RemoteException"]["message"]
    root = administration.create(getpass.getuser(), 600, administrator=True).token
    # The connection is accepted; only the request can be refused from here on.
    if path in ("/v1/tokens", "/v1/tokens/clients") and method == "GET":
        assert http.request(method, path, headers=shown(root)).status_code == 200
    else:
        answer = http.request(method, path, content=b"nonsense", headers=shown(root))
        assert answer.status_code not in (401, 403) or "administrator" not in answer.text


def test_superuser_is_one_by_the_identity_of_its_token(cluster, administration, alice):
    with PeaceFileSystem(cluster.http_address, token=alice) as files:
        files.write("/user/alice/mine", b"secret")
        files.set_permission("/user/alice/mine", 0o600)
    root = administration.create(getpass.getuser(), 600).token
    with PeaceFileSystem(cluster.http_address, token=root) as files:
        assert files.read("/user/alice/mine") == b"secret"
        files.quotas.set("/user/alice", names=1000)


def test_frames_are_from_whom_the_hello_shows(cluster, alice, bob):
    with PeaceFileSystem(cluster.http_address, token=alice) as files:
        files.write("/user/alice/framed", b"alice's")
        files.set_permission("/user/alice/framed", 0o600)
        assert files.read("/user/alice/framed") == b"alice's"
        assert files.status("/user/alice/framed").owner == "alice"
    with PeaceFileSystem(cluster.http_address, token=bob) as files, pytest.raises(AccessDenied):
        files.read("/user/alice/framed")
    # The forger names another user in the message.
    with PeaceFileSystem(cluster.http_address, "alice", token=bob) as files:
        for forged in (lambda: files.read("/user/alice/framed"), lambda: files.write("/user/alice/forged", b"x")):
            with pytest.raises(AccessDenied, match="may not act as alice"):
                forged()
    with PeaceFileSystem(cluster.http_address, "alice", token="") as files, pytest.raises(Unauthenticated):
        files.read("/user/alice/framed")


def test_token_of_one_user_is_of_no_use_to_another(http, alice, bob):
    opened = http.post(
        "/v1/files/create", json={"path": "/user/alice/leave", "user": "alice"}, headers=shown(alice)
    ).json()
    wanted = {"token": opened["token"]}
    refused = http.post("/v1/files/allocate", json=wanted, headers=shown(bob))
    assert refused.status_code == 403
    assert "this token was given to alice" in refused.json()["RemoteException"]["message"]
    assert http.post("/v1/files/allocate", json=wanted, headers=shown(alice)).status_code == 200


def _redirect(http: httpx.Client, token: str, method: str, target: str) -> str:
    answer = http.request(method, target, headers=shown(token))
    assert answer.status_code == 307, answer.text
    return answer.headers["location"]


def test_datanode_lets_nobody_use_the_url_of_another(http, administration, alice, bob):
    written = _redirect(http, alice, "PUT", "/webhdfs/v1/user/alice/by-url?op=CREATE&overwrite=true")
    for headers, status in (({}, 401), (shown(bob), 403), (shown("a.b.c"), 401)):
        answer = httpx.put(written, content=b"stolen", headers=headers, trust_env=False, verify=False)
        assert answer.status_code == status, answer.text
        assert "RemoteException" in answer.json()
    assert (
        httpx.put(written, content=b"alice's", headers=shown(alice), trust_env=False, verify=False).status_code
        == 201
    )
    for operation, method in (("OPEN", "GET"), ("GETFILECHECKSUM", "GET"), ("APPEND", "POST")):
        url = _redirect(http, alice, method, f"/webhdfs/v1/user/alice/by-url?op={operation}")
        for headers, status in (({}, 401), (shown(bob), 403)):
            assert httpx.request(method, url, headers=headers, trust_env=False, verify=False).status_code == status
        assert httpx.request(method, url, headers=shown(alice), trust_env=False, verify=False).status_code == 200
    root = administration.create(getpass.getuser(), 600, administrator=True).token
    url = _redirect(http, root, "GET", "/webhdfs/v1/user/alice/by-url?op=OPEN&doas=alice")
    assert httpx.get(url, headers=shown(root), trust_env=False, verify=False).content == b"alice's"


def test_revoked_token_ends_at_coordinator_and_datanodes(http, administration):
    made = administration.create("alice", 3600)
    http.put("/webhdfs/v1/user/alice/revoked?op=MKDIRS", headers=shown(made.token))
    written = _redirect(http, made.token, "PUT", "/webhdfs/v1/user/alice/revoked/f?op=CREATE&overwrite=true")
    assert (
        httpx.put(written, content=b"x", headers=shown(made.token), trust_env=False, verify=False).status_code
        == 201
    )
    read = _redirect(http, made.token, "GET", "/webhdfs/v1/user/alice/revoked/f?op=OPEN")
    assert made.id in {each.id for each in administration.listed().tokens}
    administration.revoke(made.id)
    refused = http.get("/webhdfs/v1/?op=LISTSTATUS", headers=shown(made.token))
    assert refused.status_code == 401 and "revoked" in refused.text
    wait_until(
        lambda: httpx.get(read, headers=shown(made.token), trust_env=False, verify=False).status_code == 401,
        "the revocation",
    )
    assert made.id in administration.listed().revoked


def test_keys_rotate_under_use_without_a_refusal(cluster, http, administration, alice):
    signing = {key.id for key in administration.listed().keys if key.ends_ms is None}
    good_at_once = 0
    with PeaceFileSystem(cluster.http_address, token=alice) as files:
        for number in range(3):
            administration.rotate_keys()
            files.write("/user/alice/rotated", f"{number}".encode(), overwrite=True)
            newer = administration.create("alice", 600).token
            url = _redirect(http, newer, "GET", "/webhdfs/v1/user/alice/rotated?op=OPEN")

            def is_good() -> bool:
                return httpx.get(url, headers=shown(newer), trust_env=False, verify=False).status_code == 200  # noqa: B023

            good_at_once += is_good()
            # A busy datanode may learn of the key slightly later than the coordinator uses it.
            wait_until(is_good, "the new key")
            assert (
                httpx.get(url, headers=shown(alice), trust_env=False, verify=False).content == f"{number}".encode()
            )
    assert good_at_once > 0, "datanodes are told of keys with their heartbeats only"
    now = {key.id for key in administration.listed().keys if key.ends_ms is None}
    assert len(now) == len(signing) == 1 and now != signing


def test_restart_forgets_no_token_and_no_revocation(cluster, http, administration, alice):
    revoked = administration.create("alice", 3600)
    administration.revoke(revoked.id)
    client = administration.create_client("spark", 60)
    cluster.coordinator.kill()
    cluster.restart(cluster.coordinator)
    assert http.get("/webhdfs/v1/?op=LISTSTATUS", headers=shown(alice)).status_code == 200
    assert http.get("/webhdfs/v1/?op=LISTSTATUS", headers=shown(revoked.token)).status_code == 401
    granted = _grant(http, client_id=client.id, client_secret=client.secret, grant_type="client_credentials")
    assert granted.status_code == 200


def _grant(http: httpx.Client, **form: str) -> httpx.Response:
    return http.post("/v1/oauth2/token", data=form)


def test_oauth_endpoint_answers_as_the_rfc_has_it(http, administration):
    client = administration.create_client("spark", 60)
    right = {"client_id": client.id, "client_secret": client.secret, "grant_type": "client_credentials"}
    granted = _grant(http, **right)
    assert granted.headers["cache-control"] == "no-store"
    said = granted.json()
    assert (said["token_type"], said["expires_in"]) == ("Bearer", 60)
    home = http.get("/webhdfs/v1/?op=GETHOMEDIRECTORY", headers=shown(said["access_token"])).json()
    assert home == {"Path": "/user/spark"}
    basic = http.post(
        "/v1/oauth2/token", data={"grant_type": "client_credentials"}, auth=(client.id, client.secret)
    )
    assert basic.status_code == 200
    for changed, status, error in (
        ({"client_secret": "wrong"}, 401, "invalid_client"),
        ({"client_id": "unknown"}, 401, "invalid_client"),
        ({"grant_type": "password"}, 400, "unsupported_grant_type"),
        ({"grant_type": ""}, 400, "invalid_request"),
        ({"client_secret": ""}, 400, "invalid_request"),
        ({"grant_type": "refresh_token", "refresh_token": "a.b.c"}, 400, "invalid_grant"),
    ):
        refused = _grant(http, **(right | changed))
        assert (refused.status_code, refused.json()["error"]) == (status, error)
        assert ("www-authenticate" in refused.headers) == (status == 401)
    assert http.post("/v1/oauth2/token", json=right).json()["error"] == "invalid_request"
    assert http.get("/v1/oauth2/token").status_code == 405
    listed = [each.id for each in administration.clients()]
    assert client.id in listed
    administration.delete_client(client.id)
    assert client.id not in [each.id for each in administration.clients()]
    assert http.get("/v1/status", headers=shown(said["access_token"])).status_code == 401


def test_delegation_token_does_what_its_owner_may(http, alice, bob):
    root = "/webhdfs/v1/user/alice"
    answer = http.get(f"{root}?op=GETDELEGATIONTOKEN&renewer=bob", headers=shown(alice)).json()
    token = answer["Token"]["urlString"]
    as_alice = f"delegation={quote(token)}"
    assert http.put(f"{root}/delegated?op=MKDIRS&{as_alice}&user.name=root").json() == {"boolean": True}
    written = http.put(f"{root}/delegated/f?op=CREATE&{as_alice}").headers["location"]
    assert httpx.put(written, content=b"delegated", trust_env=False, verify=False).status_code == 201
    read = http.get(f"{root}/delegated/f?op=OPEN&{as_alice}").headers["location"]
    assert httpx.get(read, trust_env=False, verify=False).content == b"delegated"
    assert http.get(f"/v1/status?{as_alice}").status_code == 401
    assert http.get(f"{root}?op=GETDELEGATIONTOKEN&{as_alice}").status_code == 403
    renewed = http.put(f"/webhdfs/v1/?op=RENEWDELEGATIONTOKEN&token={quote(token)}", headers=shown(bob)).json()
    assert renewed["long"] / 1000 > time.time()
    assert http.put(f"/webhdfs/v1/?op=CANCELDELEGATIONTOKEN&token={quote(token)}", headers=shown(alice)).is_success
    assert http.get(f"{root}?op=LISTSTATUS&{as_alice}").status_code == 401
    wait_until(lambda: httpx.get(read, trust_env=False, verify=False).status_code == 401, "the cancellation")


def test_token_file_is_read_again_when_it_has_changed(cluster, administration, tmp_path):
    first = administration.create("alice", 3600)
    file = tmp_path / "token"
    file.write_text(first.token + "\n")
    file.chmod(0o600)
    with PeaceFileSystem(cluster.http_address, token_file=file) as files:
        files.write("/user/alice/long-lived", b"1", overwrite=True)
        administration.revoke(first.id)
        for ask in (lambda: files.read("/user/alice/long-lived"), lambda: files.status("/user")):
            with pytest.raises(Unauthenticated, match=r"revoked: make another with `peacefs token create`"):
                ask()
        file.write_text(administration.create("alice", 3600).token)
        assert files.read("/user/alice/long-lived") == b"1"
        assert files.status("/user/alice/long-lived").owner == "alice"
    file.chmod(0o644)
    with pytest.raises(BadRequest, match="every user of this machine can read"):
        PeaceFileSystem(cluster.http_address, token_file=file)


def test_runs_of_queries_belong_to_whose_token_it_is(cluster, alice, monkeypatch):
    monkeypatch.setenv("PEACEFS_TOKEN", alice)
    with CheckpointRuns(cluster.address) as runs:
        assert runs.user == "alice"
        begun = runs.begin("/user/alice/checkpoint", host="h", pid=1)
        assert [run.user for run in runs.latest("/user/alice/checkpoint")] == ["alice"]
        runs.end(begun.location)


def test_checkpoints_are_looked_into_with_the_rights_of_who_asks(http, alice, bob):
    made = http.put("/webhdfs/v1/user/alice/hidden/q?op=MKDIRS&permission=700", headers=shown(alice))
    assert made.is_success
    http.put("/webhdfs/v1/user/alice/hidden?op=SETPERMISSION&permission=700", headers=shown(alice))
    seen = http.get("/v1/checkpoints?path=/user/alice/hidden", headers=shown(alice))
    assert (seen.status_code, seen.json()) == (200, {"checkpoints": []})
    assert http.get("/v1/checkpoints?path=/user/alice/hidden", headers=shown(bob)).status_code == 403


def _command(cluster: LocalCluster, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "peacefs", *arguments],
        env=os.environ | {"PEACEFS_COORDINATOR": cluster.http_address} | environment,
        capture_output=True,
        text=True,
    )


def test_commands_show_a_token_and_say_in_one_line_when_it_is_no_good(cluster, tmp_path):
    directory = ["--directory", str(cluster.directory)]
    file = tmp_path / "alice.token"
    made = _command(cluster, *directory, "token", "create", "--user", "alice", "--ttl", "1h")
    assert made.returncode == 0 and "alice until" in made.stderr
    file.write_text(made.stdout)
    file.chmod(0o600)
    assert _command(cluster, "--token-file", str(file), "mkdir", "-p", "by-command").returncode == 0
    listed = _command(cluster, "ls", "/user/alice", PEACEFS_TOKEN_FILE=str(file))
    assert "/user/alice/by-command" in listed.stdout
    without = _command(cluster, "ls", "/")
    assert (without.returncode, without.stderr.count("\n")) == (1, 1)
    assert without.stderr.startswith("peacefs: ls: no token came with the connection")
    refused = _command(cluster, "--token-file", str(file), "token", "list")
    assert refused.returncode == 1 and "administrator's token" in refused.stderr
    table = _command(cluster, *directory, "token", "list").stdout
    token_id = made.stderr.partition(":")[0]
    assert token_id in table and made.stdout.strip() not in table
    assert _command(cluster, *directory, "token", "revoke", token_id).returncode == 0
    ended = _command(cluster, "--token-file", str(file), "ls", "/")
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert "revoked: make another with `peacefs token create`" in ended.stderr
    for command in (["rotate-keys"], ["client", "list"], ["client", "create", "--user", "spark"]):
        assert _command(cluster, *directory, "token", *command).returncode == 0
    balanced = _command(cluster, *directory, "balance")
    assert balanced.returncode == 0, balanced.stderr


def test_no_token_is_written_to_a_log(cluster, administration, http, alice):
    secret = administration.create("alice", 60).token
    http.get("/webhdfs/v1/?op=NOSUCH", headers=shown(secret))
    http.get("/v1/files/nothing", headers=shown(secret))
    with pytest.raises(PeacefsError), PeaceFileSystem(cluster.http_address, token=secret) as files:
        files.read("/nothing/there")
    logs = "".join(path.read_text() for path in (cluster.directory / "logs").iterdir())
    assert logs
    for token in (secret, alice):
        assert token not in logs and token.split(".")[2] not in logs
    assert "authentication token: every request needs a token" in logs


def test_client_shows_its_token_to_no_datanode(cluster, alice, monkeypatch):
    """Datanodes are trusted with chunks, not with identities, and their addresses come over the network."""
    sent: list[tuple[int, bytes]] = []
    sending = SocketConnection.send

    def recording(self: SocketConnection, message: Message, *more: Any) -> None:
        assert self.ends is not None
        sent.append((self.ends[1][1], msgspec.msgpack.encode(message)))
        sending(self, message, *more)

    monkeypatch.setattr(SocketConnection, "send", recording)
    with PeaceFileSystem(cluster.http_address, token=alice, local_sockets=False) as files:
        files.write("/user/alice/two", bytes(chunk_bytes_max // 16), overwrite=True)
        files.read("/user/alice/two")
    assert {port for port, data in sent if alice.encode() in data} == {cluster.address.port}
    assert len({port for port, _ in sent}) > 1
