"""Services act for other users where rules as in Hadoop allow it, and never otherwise."""

from __future__ import annotations

import base64
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import httpx
import pytest
from support.waiting import wait_until

from peacefs.client.control.token_administration import TokenAdministration
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.coordinator.authentication.proxy_users import ProxyUsers, parse_proxy_users
from peacefs.coordinator.namespace.permissions import Callers
from peacefs.protocol.callers.delegation import DelegationToken, Identifier
from peacefs.protocol.errors import BadRequest, ImpersonationRefused, StartupError

RULES = """
hadoop.proxyuser.oozie.hosts = "127.0.0.1, 10.1.0.0/16, gateway"
hadoop.proxyuser.oozie.groups = "analysts"
hadoop.proxyuser.oozie.users = "carol, root"
hadoop.proxyuser.hue.hosts = "*"
hadoop.proxyuser.hue.users = "*"
hadoop.proxyuser.nowhere.users = "*"
"""
AUTHORIZATION = "org.apache.hadoop.security.authorize.AuthorizationException"


def addresses(host: str) -> list[str]:
    if host != "gateway":
        raise OSError("no such host")
    return ["192.0.2.7", "2001:db8::7"]


@pytest.fixture
def rules() -> ProxyUsers:
    callers = Callers("root", {"analysts": ["alice"], "supergroup": ["admin"]})
    return ProxyUsers(callers, parse_proxy_users(RULES, addresses))


@pytest.mark.parametrize(
    ("real", "effective", "address"),
    [
        ("oozie", "alice", "127.0.0.1"),
        ("oozie", "alice", "10.1.255.1"),
        ("oozie", "alice", "192.0.2.7"),
        ("oozie", "alice", "2001:db8::7"),
        ("oozie", "alice", "::ffff:10.1.2.3"),
        ("oozie", "carol", "127.0.0.1"),
        # A service may act for a superuser only if the rule names that superuser.
        ("oozie", "root", "127.0.0.1"),
        ("hue", "anybody", "203.0.113.9"),
    ],
)
def test_proxy_user_acts_for_whom_the_rules_name_from_where_they_say(rules, real, effective, address):
    rules.authorize(real, effective, address)


@pytest.mark.parametrize(
    ("real", "effective", "address", "words"),
    [
        ("oozie", "bob", "127.0.0.1", "User: oozie is not allowed to impersonate bob"),
        ("oozie", "alice", "10.2.0.1", "Unauthorized connection for super-user: oozie from IP /10.2.0.1"),
        ("oozie", "alice", None, "Unauthorized connection for super-user: oozie"),
        ("oozie", "alice", "gateway", "Unauthorized connection"),
        ("alice", "bob", "127.0.0.1", "User: alice is not allowed to impersonate bob"),
        ("nowhere", "alice", "127.0.0.1", "Unauthorized connection for super-user: nowhere"),
        ("Oozie", "alice", "127.0.0.1", "User: Oozie is not allowed"),
        # Neither `*` nor a group includes superusers.
        ("hue", "root", "127.0.0.1", "User: hue is not allowed to impersonate root"),
        ("hue", "admin", "127.0.0.1", "User: hue is not allowed to impersonate admin"),
        ("*", "alice", "127.0.0.1", "is not allowed"),
    ],
)
def test_proxy_user_is_refused_in_the_words_of_hadoop(rules, real, effective, address, words):
    with pytest.raises(ImpersonationRefused) as refused:
        rules.authorize(real, effective, address)
    assert words in refused.value.message


def test_proxy_user_acts_for_no_name_that_nobody_can_have(rules):
    with pytest.raises(BadRequest):
        rules.authorize("hue", "a" * 256, "127.0.0.1")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hadoop.proxyuser.oozie = 3", "has hosts, groups and users, and nothing else"),
        ('hadoop.proxyuser.oozie.host = "*"', "has hosts, groups and users, and nothing else"),
        ('hadoop.proxyuser.oozie.hosts = ["*"]', "hadoop.proxyuser.oozie.hosts is a text"),
        ('hadoop.proxyuser.oozie.hosts = "*, 10.0.0.1"', "has * and names"),
        ('hadoop.proxyuser.oozie.hosts = "nowhere.example"', "no address of the host 'nowhere.example'"),
        ('hadoop.proxyuser."*".hosts = "*"', "would let everybody act for others"),
        ('hadoop.proxyusers.oozie.hosts = "*"', "begin with hadoop.proxyuser"),
        ('hadoop.proxyuser.oozie.hosts = "*"\nfs.defaultFS = "x"', "begin with hadoop.proxyuser"),
        ("hadoop.proxyuser.oozie.hosts = ", "it is not TOML"),
    ],
)
def test_rules_that_are_not_as_hadoop_has_them_are_refused_in_one_line(text, words):
    with pytest.raises(StartupError) as refused:
        parse_proxy_users(text, addresses)
    assert words in refused.value.message
    assert "\n" not in refused.value.message


def test_rules_may_be_none_at_all():
    assert parse_proxy_users("# nobody yet\n", addresses) == {}


# -- as real processes ---------------------------------------------------------------------------------------


@contextmanager
def cluster_with(directory: Path, text: str, *options: str) -> Iterator[tuple[LocalCluster, httpx.Client]]:
    rules = directory / "proxy-users.toml"
    rules.write_text(text)
    more = [f"--proxy-users={rules}", f"--audit-log={directory / 'audit.log'}", *options]
    with (
        LocalCluster(directory / "c", datanodes=2, port=0, coordinator_options=more) as cluster,
        httpx.Client(base_url=cluster.http_address, trust_env=False, verify=False, timeout=60) as http,
    ):
        yield cluster, http


def remote(answer: httpx.Response) -> tuple[int, str, str]:
    told = answer.json()["RemoteException"]
    return answer.status_code, told["javaClassName"], told["message"]


def audited(directory: Path, path: str) -> list[tuple[str | None, str | None, bool]]:
    lines = [json.loads(line) for line in (directory / "audit.log").read_text().splitlines()]
    return [(line["ugi"], line.get("real"), line["allowed"]) for line in lines if line.get("src") == path]


@pytest.mark.cluster
def test_proxy_user_makes_files_of_whom_it_acts_for_and_the_audit_log_names_both(tmp_path: Path) -> None:
    text = 'hadoop.proxyuser.oozie.hosts = "127.0.0.1"\nhadoop.proxyuser.oozie.users = "alice"\n'
    with cluster_with(tmp_path, text) as (cluster, http):
        made = http.put("/webhdfs/v1/user/alice/d?op=MKDIRS&user.name=oozie&doas=alice")
        assert made.json() == {"boolean": True}
        status = http.get("/webhdfs/v1/user/alice/d?op=GETFILESTATUS&user.name=bob").json()["FileStatus"]
        assert status["owner"] == "alice"
        home = http.get("/webhdfs/v1/?op=GETHOMEDIRECTORY&user.name=oozie&doAs=alice").json()
        assert home == {"Path": "/user/alice"}
        for query in (
            "user.name=oozie&doas=bob",
            "user.name=bob&doas=alice",
            "doas=alice",
            "user.name=oozie&%64oas=alice",
            "user.name=oozie&doas=root",
        ):
            answer = http.put(f"/webhdfs/v1/refused?op=MKDIRS&{query}", headers={"X-Forwarded-For": "127.0.0.1"})
            code, java_class, words = remote(answer)
            assert (code, java_class) == (403, AUTHORIZATION), query
            assert "is not allowed to impersonate" in words
        wait_until(lambda: len(audited(tmp_path, "/refused")) == 5, "the refusals are told")
        assert audited(tmp_path, "/user/alice/d")[0] == ("alice", "oozie", True)
        assert {allowed for _, _, allowed in audited(tmp_path, "/refused")} == {False}
        # Unreadable rules change nothing, and readable ones apply at once.
        rules = tmp_path / "proxy-users.toml"
        for said, is_allowed in (("nonsense", True), ("", False)):
            rules.write_text(said)
            os.kill(cluster.coordinator.pid, signal.SIGHUP)
            url = "/webhdfs/v1/?op=GETHOMEDIRECTORY&user.name=oozie&doas=alice"
            assert cluster.coordinator.log is not None
            words = "stay in force" if is_allowed else "0 services may act for others"
            wait_until(lambda words=words: words in cluster.coordinator.log.read_text(), "the rules are read")
            assert http.get(url).is_success is is_allowed


@pytest.mark.cluster
def test_proxy_user_from_another_host_is_refused_whatever_it_says_of_itself(tmp_path: Path) -> None:
    text = 'hadoop.proxyuser.oozie.hosts = "10.9.8.7"\nhadoop.proxyuser.oozie.users = "*"\n'
    with cluster_with(tmp_path, text) as (_cluster, http):
        forged = dict.fromkeys(("X-Forwarded-For", "X-Real-IP", "Forwarded", "Client-IP"), "10.9.8.7")
        answer = http.get("/webhdfs/v1/?op=LISTSTATUS&user.name=oozie&doas=alice", headers=forged)
        code, java_class, words = remote(answer)
        assert (code, java_class) == (403, AUTHORIZATION)
        assert words == "Unauthorized connection for super-user: oozie from IP /127.0.0.1"


@pytest.mark.cluster
def test_proxy_user_with_a_token_writes_reads_and_fetches_delegation_tokens_for_another(tmp_path: Path) -> None:
    text = 'hadoop.proxyuser.oozie.hosts = "*"\nhadoop.proxyuser.oozie.users = "alice"\n'
    with cluster_with(tmp_path, text, "--authentication=token") as (cluster, http):
        with TokenAdministration(f"unix:{cluster.directory}") as administration:
            tokens = {name: administration.create(name, 3600).token for name in ("oozie", "mallory", "alice")}
        oozie, mallory, alice = ({"Authorization": f"Bearer {tokens[name]}"} for name in tokens)
        path = "/webhdfs/v1/user/alice/file"
        begun = http.put(f"{path}?op=CREATE&doas=alice&replication=1", headers=oozie)
        assert begun.status_code == 307
        url = begun.headers["location"]

        # The URL is useless to others, with another URL's pass, and without its own pass.
        other = http.put("/webhdfs/v1/user/alice/x?op=CREATE&doas=alice&replication=1", headers=oozie)
        passes = [value for key, value in query_of(other.headers["location"]) if key == "proxypass"]
        assert httpx.put(url, headers=mallory, content=b"forged", trust_env=False, verify=False).status_code == 403
        for stolen in ([], passes, ["AAAA"]):
            assert (
                httpx.put(
                    with_pass(url, stolen), headers=oozie, content=b"", trust_env=False, verify=False
                ).status_code
                == 403
            )

        assert httpx.put(url, headers=oozie, content=b"by oozie", trust_env=False, verify=False).status_code == 201
        status = http.get(f"{path}?op=GETFILESTATUS", headers=alice).json()["FileStatus"]
        assert (status["owner"], status["length"]) == ("alice", 8)
        read = http.get(f"{path}?op=OPEN&doas=alice", headers=oozie, follow_redirects=False)
        got = httpx.get(read.headers["location"], headers=oozie, trust_env=False, verify=False)
        assert got.content == b"by oozie"
        assert (
            httpx.get(read.headers["location"], headers=mallory, trust_env=False, verify=False).status_code == 403
        )

        for headers, doas in ((mallory, "alice"), (oozie, "mallory"), (oozie, "root"), (alice, "oozie")):
            refused = http.get(f"/webhdfs/v1/?op=GETDELEGATIONTOKEN&doas={doas}", headers=headers)
            assert remote(refused)[:2] == (403, AUTHORIZATION)
        # REST does not support proxy users.
        body = {"path": "/user/alice/y", "user": "alice"}
        assert http.post("/v1/files/create", json=body, headers=oozie).status_code == 403

        asked = "/webhdfs/v1/?op=GETDELEGATIONTOKEN&renewer=oozie&doas=alice"
        given = http.get(asked, headers=oozie).json()["Token"]["urlString"]
        said = Identifier.decode(DelegationToken.parse(given).identifier)
        assert (said.owner, said.real_user, said.renewer) == ("alice", "oozie", "oozie")
        home = http.get(f"/webhdfs/v1/?op=GETHOMEDIRECTORY&delegation={given}").json()
        assert home == {"Path": "/user/alice"}
        # It belongs to alice only, and a modified one is invalid.
        assert http.get(f"/webhdfs/v1/?op=GETHOMEDIRECTORY&delegation={given}&doas=oozie").status_code == 403
        raw = base64.urlsafe_b64decode(given + "=" * (-len(given) % 4)).replace(b"alice", b"admin")
        changed = base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
        assert http.get(f"/webhdfs/v1/?op=GETHOMEDIRECTORY&delegation={changed}").status_code == 401
        renewed = http.put(f"/webhdfs/v1/?op=RENEWDELEGATIONTOKEN&token={given}", headers=oozie)
        assert renewed.is_success


@pytest.mark.cluster
def test_nobody_acts_for_others_by_default(tmp_path: Path) -> None:
    with (
        LocalCluster(tmp_path, datanodes=1, port=0) as cluster,
        httpx.Client(base_url=cluster.http_address, trust_env=False, verify=False, timeout=60) as http,
    ):
        me = cluster.directory.owner()
        for real in ("alice", me):
            answer = http.get(f"/webhdfs/v1/?op=LISTSTATUS&user.name={real}&doas=bob")
            assert remote(answer) == (403, AUTHORIZATION, f"User: {real} is not allowed to impersonate bob")


def query_of(url: str) -> list[tuple[str, str]]:
    return parse_qsl(urlsplit(url).query, keep_blank_values=True)


def with_pass(url: str, passes: list[str]) -> str:
    query = [(key, value) for key, value in query_of(url) if key != "proxypass"]
    query += [("proxypass", each) for each in passes]
    return urlunsplit(urlsplit(url)._replace(query=urlencode(query)))
