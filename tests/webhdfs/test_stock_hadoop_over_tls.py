"""Hadoop's own client over `swebhdfs://`, with our generated truststore and printed settings."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark.java_gateway")
py4j_protocol = pytest.importorskip("py4j.protocol")

from support.open_root import make_homes_of  # noqa: E402
from support.stock_hadoop import Hadoop, running_gateway, running_hadoop  # noqa: E402

from peacefs.client.control.token_administration import TokenAdministration  # noqa: E402
from peacefs.client.filesystem import PeaceFileSystem  # noqa: E402
from peacefs.client.local_cluster.cluster import LocalCluster  # noqa: E402
from peacefs.client.local_cluster.trial_certificates import TrialAuthority  # noqa: E402
from peacefs.spark_connector.session import (  # noqa: E402
    OAuth2Client,
    as_dict,
    credential_settings,
    truststore_settings,
)

pytestmark = [pytest.mark.spark, pytest.mark.cluster]
MIB = 1 << 20


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("cluster"), datanodes=3, port=0, tls=True) as cluster:
        yield cluster


def trust(truststore: Path) -> dict[str, str]:
    return {
        setting.key.removeprefix("spark.hadoop."): setting.value
        for setting in truststore_settings(str(truststore))
    }


@pytest.fixture(scope="module")
def hadoop(cluster: LocalCluster, stock_gateway: Any) -> Iterator[Hadoop]:
    assert cluster.truststore is not None
    with running_hadoop(stock_gateway, cluster.webhdfs_uri, trust(cluster.truststore)) as hadoop:
        yield hadoop


@pytest.mark.parametrize("size", [0, 1, 100_000, 3 * MIB, 70 * MIB], ids=str)
def test_swebhdfs_client_reads_what_it_has_written(hadoop, cluster, size, tmp_path):
    data = random.Random(size).randbytes(size)
    if size <= 3 * MIB:
        hadoop.write(f"/cycle/{size}", data)
    else:
        (tmp_path / "data").write_bytes(data)
        hadoop.write_from(f"/cycle/{size}", tmp_path / "data")
    with PeaceFileSystem(cluster.http_address, ca_file=cluster.ca_file) as files:
        assert files.read(f"/cycle/{size}") == data
    if size <= 3 * MIB:
        assert hadoop.read(f"/cycle/{size}") == data
        assert hadoop.read(f"/cycle/{size}", size // 2) == data[size // 2 :]


def test_swebhdfs_client_appends_renames_lists_and_checkpoints_atomically(hadoop):
    hadoop.write("/dir/a", b"one")
    stream = hadoop.fs.append(hadoop.path("/dir/a"))
    stream.write(b", two")
    stream.close()
    assert hadoop.read("/dir/a") == b"one, two"
    hadoop.rename("/dir/a", "/dir/b")
    assert hadoop.names("/dir") == ["b"]
    pending = hadoop.checkpoints.createAtomic(hadoop.path("/dir/offsets"), True)
    pending.write(b"7")
    pending.close()
    assert hadoop.read("/dir/offsets") == b"7"


def test_swebhdfs_client_of_another_authority_is_refused(hadoop, cluster, tmp_path):
    other = TrialAuthority(tmp_path / "other").truststore
    configuration = hadoop.jvm.org.apache.hadoop.conf.Configuration()
    for name, value in (trust(other) | {"dfs.http.client.retry.policy.enabled": "false"}).items():
        configuration.set(name, value)
    files = hadoop.fs_package.FileSystem.newInstance(hadoop.uri, configuration)
    try:
        with pytest.raises(py4j_protocol.Py4JJavaError, match=r"(?i)ssl|certification path"):
            files.listStatus(hadoop.path("/"))
    finally:
        files.close()


def test_truststore_is_one_that_java_itself_lists(cluster, hadoop):
    """Java reads certificates from a PKCS12 file only if an attribute marks them as trusted."""
    store = hadoop.jvm.java.security.KeyStore.getInstance("PKCS12")
    stream = hadoop.jvm.java.io.FileInputStream(str(cluster.truststore))
    password = hadoop.gateway.new_array(hadoop.gateway.jvm.char, len("peacefs"))
    for index, letter in enumerate("peacefs"):
        password[index] = letter
    store.load(stream, password)
    stream.close()
    assert store.size() == 1
    assert store.isCertificateEntry(store.aliases().nextElement())


def test_settings_are_printed_with_the_certificates(tmp_path):
    made = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "peacefs", "certificates", "create"),
            *(f"--directory={tmp_path}", "--host=node1,10.0.0.1", "--host=node2", "--days=30"),
        ],
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
    ).stdout
    assert f"--conf spark.hadoop.ssl.client.truststore.location={tmp_path / 'truststore.p12'}" in made
    assert f"--tls-certificate {tmp_path / 'node1.pem'} --tls-key {tmp_path / 'node1-key.pem'}" in made
    assert "30 days" in made
    shown = subprocess.run(
        [*(sys.executable, "-P", "-m", "peacefs", "certificates", "show"), str(tmp_path / "node1.pem")],
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
    ).stdout
    assert "node1, localhost, 10.0.0.1" in shown
    assert "30 days left" in shown


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("asking")
    options = ["--authentication=token"]
    with LocalCluster(directory, datanodes=2, port=0, coordinator_options=options, tls=True) as cluster:
        make_homes_of(cluster.directory, "etl", "ann")
        yield cluster


class TestTokens:
    """Callers authenticate with a token, which Hadoop's own client also fetches over TLS."""

    def test_swebhdfs_client_fetches_its_tokens_over_tls(self, asking, tmp_path, monkeypatch):
        with TokenAdministration(f"unix:{asking.directory}") as administration:
            made = administration.create_client("etl", 3600)
        assert asking.truststore is not None
        store = str(asking.truststore)
        table = as_dict(credential_settings(asking.http_address, OAuth2Client(made.id, made.secret), store))
        shown = {key.removeprefix("spark.hadoop."): value for key, value in table.items()}
        # Spark passes these settings to the JVMs of its driver and executors.
        monkeypatch.setenv("JDK_JAVA_OPTIONS", table["spark.driver.defaultJavaOptions"])
        data = random.Random(5).randbytes(3 * MIB)
        with (
            running_gateway(tmp_path) as gateway,
            running_hadoop(gateway, asking.webhdfs_uri, trust(asking.truststore) | shown) as hadoop,
        ):
            hadoop.write("/user/etl/data", data)
            assert hadoop.read("/user/etl/data") == data
            assert hadoop.fs.getFileStatus(hadoop.path("/user/etl/data")).getOwner() == "etl"

    def test_our_client_shows_its_token_over_tls_alone(self, asking, monkeypatch):
        with TokenAdministration(f"unix:{asking.directory}") as administration:
            token = administration.create("ann", 3600).token
        with PeaceFileSystem(asking.http_address, ca_file=asking.ca_file, token=token) as files:
            files.write("/user/ann/notes", b"over TLS")
            assert files.read("/user/ann/notes") == b"over TLS"
            assert files.status("/user/ann/notes").owner == "ann"
        monkeypatch.setenv("PEACEFS_CA_FILE", str(asking.ca_file))
        with PeaceFileSystem(f"unix:{asking.directory}") as administrators:
            assert administrators.read("/user/ann/notes") == b"over TLS"
