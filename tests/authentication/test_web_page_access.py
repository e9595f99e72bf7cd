"""Without a token one can get the web page's files and the health status, but no data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from peacefs.client.control.token_administration import TokenAdministration
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.coordinator.api.authentication import OPEN_PATHS
from peacefs.coordinator.api.live import live_stream_s_max
from peacefs.coordinator.api.rest.web_page import PAGE_POLICY

pytestmark = pytest.mark.cluster
_LIVE = ("cluster", "peace", "queries")
_FILES = ("", "index.html", "style.css", "main.js", "dom.js", "session.js", "cluster.js", "files.js", "peace.js")


@contextmanager
def events(cluster: LocalCluster, view: str, token: str) -> Iterator[Iterator[tuple[str, str]]]:
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.stream("GET", f"{cluster.http_address}/v1/live/{view}", headers=headers, timeout=180) as answer:
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        lines = answer.iter_lines()
        yield ((line[7:], next(lines)[6:]) for line in lines if line.startswith("event: "))


def test_stranger_is_shown_the_page_without_data_and_nothing_else(cluster: LocalCluster) -> None:
    with httpx.Client(base_url=cluster.http_address, timeout=180) as stranger:
        for name in _FILES:
            answer = stranger.get(f"/ui/{name}")
            assert (answer.status_code, answer.headers["content-security-policy"]) == (200, PAGE_POLICY)
            again = stranger.get(f"/ui/{name}", headers={"If-None-Match": answer.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
        for name in ("none.js", "__init__.py", "..%2findex.html", "%2e%2e/v1/status", "a/b"):
            answer = stranger.get(f"/ui/{name}")
            assert (answer.status_code, "RemoteException" in answer.json()) == (404, True), name
        for path in ("/health/live", "/health/ready"):
            assert stranger.get(path).json() == {"ok": True, "role": "leader", "problems": []}
        closed = [
            *(f"/v1/live/{view}" for view in (*_LIVE, "none")),
            "/v1/files/chunks?path=/",
            "/v1/checkpoints/units",
            "/v1/history",
        ]
        closed += ["/uix", "/ui", "/health", "/health/ready/x", "/UI/"]
        for path in closed:
            answer = stranger.get(path)
            assert answer.status_code == 401, path
            assert stranger.get(f"{path}{'&' if '?' in path else '?'}user=root").status_code == 401, path
    assert {"/", "/metrics", "/health/live", "/health/ready", "/v1/oauth2/token"} == OPEN_PATHS


def test_page_may_not_be_shown_by_another_site_nor_under_another_name(cluster: LocalCluster) -> None:
    for path in ("/ui/", "/ui/main.js", "/v1/live/cluster", "/health/ready"):
        for header in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
            answer = httpx.get(cluster.http_address + path, headers=header, timeout=180)
            assert answer.status_code == 403, (path, header)
    answer = httpx.get(f"{cluster.http_address}/ui/", timeout=180)
    assert answer.headers["x-frame-options"] == "DENY"
    for part in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for"):
        assert part in PAGE_POLICY
    assert "unsafe" not in PAGE_POLICY


def test_live_views_are_for_who_has_a_token_and_say_who_that_is(
    cluster: LocalCluster, administration: TokenAdministration
) -> None:
    token = administration.create("ann", 3600)
    for view in _LIVE:
        with events(cluster, view, token.token) as told:
            name, data = next(told)
            session = json.loads(data)
            assert (name, session["user"], session["administrator"]) == ("session", "ann", False)
            name, data = next(told)
            assert name == "view" and json.loads(data)
    headers = {"Authorization": f"Bearer {token.token}"}
    answer = httpx.get(f"{cluster.http_address}/v1/live/cluster?user=root", headers=headers, timeout=180)
    assert (answer.status_code, "may not act as root" in answer.text) == (403, True)
    assert httpx.get(f"{cluster.http_address}/v1/live/none", headers=headers, timeout=180).status_code == 404
    administration.revoke(token.id)
    assert httpx.get(f"{cluster.http_address}/v1/live/cluster", headers=headers, timeout=180).status_code == 401
    # An open stream ends by then, and cannot be opened again.
    assert live_stream_s_max <= 60


def test_page_is_told_who_may_administer_and_who_may_set_quotas(
    cluster: LocalCluster, administration: TokenAdministration
) -> None:
    for user, by_administrator, superuser, administers in (
        ("ann", False, False, False),
        ("root", False, True, False),
        ("root", True, True, True),
    ):
        token = administration.create(user, 3600, administrator=by_administrator).token
        with events(cluster, "cluster", token) as told:
            session = json.loads(next(told)[1])
        assert (session["superuser"], session["administers"]) == (superuser, administers)
        # The coordinator decides, whatever the page offers.
        answer = httpx.post(
            f"{cluster.http_address}/v1/datanodes/none/decommission",
            headers={"Authorization": f"Bearer {token}", "X-XSRF-HEADER": "peacefs"},
            timeout=180,
        )
        assert answer.status_code == (400 if administers else 403), answer.text


def test_chunks_of_a_file_are_shown_to_who_may_read_it(
    cluster: LocalCluster, administration: TokenAdministration
) -> None:
    tokens = {user: administration.create(user, 3600).token for user in ("ann", "bob")}
    administrator = administration.create("root", 3600, administrator=True).token
    with PeaceFileSystem(cluster.http_address, token=administrator) as files:
        files.mkdirs("/shown")
        files.set_owner("/shown", "ann")
        files.write("/shown/secret", b"x" * 1000, replication=2)
        files.set_owner("/shown/secret", "ann")
        files.set_permission("/shown/secret", 0o600)

    def ask(user: str, path: str) -> httpx.Response:
        return httpx.get(
            f"{cluster.http_address}/v1/files/chunks",
            params={"path": path},
            headers={"Authorization": f"Bearer {tokens[user]}"},
            timeout=180,
        )

    answer = ask("ann", "/shown/secret").json()
    (chunk,) = answer["chunks"]
    assert (answer["length"], answer["count"], chunk["length"], len(chunk["replicas"])) == (1000, 1, 1000, 2)
    assert {(each["state"], each["datanode"]) for each in chunk["replicas"]} <= {
        ("live", "alive"),
        ("unconfirmed", "alive"),
    }
    assert ask("bob", "/shown/secret").status_code == 403
    assert ask("ann", "/shown/none").status_code == 404
    assert "Path is not a file" in ask("ann", "/shown").text
