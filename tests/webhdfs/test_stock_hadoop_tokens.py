"""The Hadoop client that PySpark bundles, unmodified, against a cluster with authentication.

It authenticates by its own means: OAuth2 from settings alone, or a delegation token of its user.
"""

from __future__ import annotations

import getpass
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

py4j_protocol = pytest.importorskip("py4j.protocol")

from support.open_root import make_homes_of  # noqa: E402
from support.stock_hadoop import exceptions_of_hadoop  # noqa: E402
from support.waiting import wait_until  # noqa: E402

from peacefs.client.control.token_administration import TokenAdministration  # noqa: E402
from peacefs.client.filesystem import PeaceFileSystem  # noqa: E402
from peacefs.client.local_cluster.cluster import LocalCluster  # noqa: E402
from peacefs.coordinator.authentication.oauth import granted_token_min_s  # noqa: E402
from peacefs.spark_connector.session import Credential, OAuth2Client, credential_settings  # noqa: E402

pytestmark = [pytest.mark.spark, pytest.mark.cluster]
MIB = 1 << 20
#: How long before the end of a token Hadoop's client fetches another one.
_EARLY_S = 30


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("cluster")
    with LocalCluster(directory, datanodes=2, port=0, coordinator_options=["--authentication=token"]) as cluster:
        make_homes_of(cluster.directory, "etl", "alice")
        yield cluster


@pytest.fixture(scope="module")
def administration(cluster: LocalCluster) -> Iterator[TokenAdministration]:
    with TokenAdministration(f"unix:{cluster.directory}") as administration:
        yield administration


@pytest.fixture(scope="module")
def gateway(stock_gateway: Any) -> Iterator[Any]:
    with exceptions_of_hadoop():
        yield stock_gateway


class Client:
    """A Hadoop file system with its own settings."""

    def __init__(self, gateway: Any, cluster: LocalCluster, credential: Credential | None = None) -> None:
        self.jvm = gateway.jvm
        self.conf = self.jvm.org.apache.hadoop.conf.Configuration()
        for setting in credential_settings(cluster.http_address, credential) if credential else []:
            self.conf.set(setting.key.removeprefix("spark.hadoop."), setting.value)
        self.uri = self.jvm.java.net.URI(cluster.webhdfs_uri)
        self.fs = self.jvm.org.apache.hadoop.fs.FileSystem.newInstance(self.uri, self.conf)

    def path(self, name: str) -> Any:
        return self.jvm.org.apache.hadoop.fs.Path(self.uri.toString() + name)

    def write(self, name: str, data: bytes) -> None:
        stream = self.fs.create(self.path(name), True)
        stream.write(data)
        stream.close()

    def append(self, name: str, data: bytes) -> None:
        stream = self.fs.append(self.path(name))
        stream.write(data)
        stream.close()

    def read(self, name: str) -> bytes:
        stream = self.fs.open(self.path(name))
        try:
            return bytes(self.jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def owner(self, name: str) -> str:
        return str(self.fs.getFileStatus(self.path(name)).getOwner())


def raises(java_class: str) -> Any:
    """Expect a Java exception, by its class at the start of its stack trace."""
    return pytest.raises(py4j_protocol.Py4JJavaError, match=rf"\n: {java_class.replace('.', '[.]')}: ")


def test_client_without_a_credential_is_unauthorized(gateway, cluster):
    with raises("org.apache.hadoop.security.AccessControlException"):
        Client(gateway, cluster).fs.listStatus(Client(gateway, cluster).path("/"))


def test_client_fetches_a_token_with_its_secret_and_is_who_that_says(gateway, cluster, administration):
    made = administration.create_client("etl", 3600)
    client = Client(gateway, cluster, OAuth2Client(made.id, made.secret))
    data = random.Random(1).randbytes(3 * MIB)
    client.write("/user/etl/data", data)
    assert client.read("/user/etl/data") == data
    client.append("/user/etl/data", b"more")
    assert client.read("/user/etl/data") == data + b"more"
    # The owner is not the name of the machine's user, which the client sends as well.
    assert client.owner("/user/etl/data") == "etl" != getpass.getuser()
    assert client.fs.getFileChecksum(client.path("/user/etl/data")) is not None
    assert client.fs.getHomeDirectory().toUri().getPath() == "/user/etl"
    assert client.fs.rename(client.path("/user/etl/data"), client.path("/user/etl/moved"))
    with raises("org.apache.hadoop.security.AccessControlException"):
        client.fs.setOwner(client.path("/user/etl/moved"), "root", None)
    wrong = Client(gateway, cluster, OAuth2Client(made.id, "a guess"))
    with raises("java.io.IOException"):
        wrong.fs.listStatus(wrong.path("/"))


def is_let_in(action: Callable[[], object]) -> bool:
    """Run a client's action; return whether its token was accepted."""
    try:
        action()
    except py4j_protocol.Py4JJavaError as error:
        if "AccessControlException" not in str(error):
            raise
        return False
    return True


def test_client_fetches_another_token_before_one_ends(gateway, cluster, administration):
    made = administration.create_client("etl", granted_token_min_s)
    client = Client(gateway, cluster, OAuth2Client(made.id, made.secret))
    client.write("/user/etl/short", b"1")
    due_s = time.monotonic() + granted_token_min_s - _EARLY_S
    while time.monotonic() < due_s + 0.5:
        assert client.read("/user/etl/short") == b"1"
    # The administrator revokes all tokens, without the client's knowledge. The client is refused until it fetches
    # its next token, which it does before its present one expires. A busy datanode learns of the new key a moment
    # later.
    administration.rotate_keys(end_all=True)
    found: list[bytes] = []

    def read() -> None:
        found.append(client.read("/user/etl/short"))

    wait_until(lambda: is_let_in(read), "it reads", granted_token_min_s - 1)
    wait_until(lambda: is_let_in(lambda: client.write("/user/etl/short", b"2")), "it writes")
    wait_until(lambda: is_let_in(read), "it reads what it has written")
    assert found == [b"1", b"2"]
    administration.delete_client(made.id)
    with pytest.raises(py4j_protocol.Py4JJavaError, match=r"AccessControlException|Unable to obtain access token"):
        client.read("/user/etl/short")


def test_client_shows_a_token_that_was_made_by_hand(gateway, cluster, administration):
    made = administration.create("alice", 3600)
    client = Client(gateway, cluster, made.token)
    client.write("/user/alice/by-hand", b"x" * MIB)
    assert client.read("/user/alice/by-hand") == b"x" * MIB
    assert client.owner("/user/alice/by-hand") == "alice"
    administration.revoke(made.id)
    with raises("org.apache.hadoop.security.AccessControlException"):
        client.fs.listStatus(client.path("/"))


def test_delegation_token_in_the_users_hands_reads_and_writes(gateway, cluster, administration):
    """One Hadoop client fetches the token, Hadoop's classes decode it, and another Hadoop client uses it."""
    alice = Client(gateway, cluster, administration.create("alice", 3600).token)
    token = alice.fs.getDelegationToken("alice")
    assert str(token.getKind()) == "WEBHDFS delegation"
    said = token.decodeIdentifier()
    assert (said.getUser().getShortUserName(), str(said.getRenewer())) == ("alice", "alice")
    assert said.getMaxDate() > said.getIssueDate() > 0
    host = cluster.address
    assert str(token.getService()) == f"{host.host}:{host.port}"

    security = gateway.jvm.org.apache.hadoop.security.UserGroupInformation
    security.getCurrentUser().addToken(token)
    try:
        bearer = Client(gateway, cluster)
        data = random.Random(2).randbytes(MIB)
        bearer.write("/user/alice/delegated", data)
        assert bearer.read("/user/alice/delegated") == data
        bearer.append("/user/alice/delegated", b"more")
        assert bearer.read("/user/alice/delegated") == data + b"more"
        assert bearer.owner("/user/alice/delegated") == "alice"
        assert alice.fs.renewDelegationToken(token) / 1000 > time.time() + 3600
        alice.fs.cancelDelegationToken(token)
        with raises("org.apache.hadoop.security.AccessControlException"):
            bearer.fs.listStatus(bearer.path("/user/alice"))
    finally:
        security.reset()
        security.setLoginUser(None)
    with PeaceFileSystem(f"unix:{cluster.directory}") as files:
        assert files.status("/user/alice/delegated").owner == "alice"
