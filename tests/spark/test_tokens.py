"""Unchanged Spark on a cluster with authentication: a batch is written and read with settings only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from peacefs.client.control.token_administration import TokenAdministration
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.spark_connector.java import find_java, java_environment
from peacefs.spark_connector.session import OAuth2Client, as_dict, credential_settings

pytestmark = [pytest.mark.spark, pytest.mark.cluster]

#: Use a session per kind of credential, since Hadoop caches the first one's file system.
JOB = """
import os, sys
from pyspark.sql import SparkSession
from peacefs.spark_connector.session import OAuth2Client, configure

address = sys.argv[1]
for kind in ("client", "token"):
    client = OAuth2Client(os.environ["CLIENT"], os.environ["SECRET"]) if kind == "client" else None
    spark = configure(SparkSession.builder.master("local[2]"), address, client=client).config(
        "spark.ui.enabled", "false").getOrCreate()
    target = address.replace("http", "webhdfs") + f"/user/etl/{kind}"
    spark.range(1000).selectExpr("string(id)").write.mode("overwrite").text(target)
    spark.range(1000, 1500).selectExpr("string(id)").write.mode("append").text(target)
    print("sum", sum(int(row.value) for row in spark.read.text(target).collect()))
    secrets = [os.environ["SECRET"], os.environ["PEACEFS_TOKEN"]]
    shown = spark.sparkContext._jsc.sc().conf().toDebugString()
    provider = spark.sparkContext.getConf().get("spark.hadoop.dfs.webhdfs.oauth2.access.token.provider")
    assert "dfs.webhdfs.oauth2.client.id" in shown
    assert ("CredentialBased" in provider) is (kind == "client"), provider
    assert not any(secret in shown for secret in secrets)
    spark.sparkContext._jvm.org.apache.hadoop.fs.FileSystem.closeAll()
    spark.stop()
"""


@pytest.mark.timeout(300)
def test_batch_is_written_and_read_as_the_tokens_user(tmp_path: Path) -> None:
    options = ["--authentication=token"]
    with LocalCluster(tmp_path / "c", datanodes=2, port=0, coordinator_options=options) as cluster:
        with TokenAdministration(f"unix:{cluster.directory}") as administration:
            client = administration.create_client("etl", 60)
            token = administration.create("etl", 3600).token
        said = {"CLIENT": client.id, "SECRET": client.secret, "PEACEFS_TOKEN": token}
        environment = os.environ | java_environment(find_java(), tmp_path / "java") | said
        done = subprocess.run(
            [sys.executable, "-P", "-c", JOB, cluster.http_address],
            env=environment | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-5000:]
        assert done.stdout.count(f"sum {sum(range(1500))}") == 2
        assert client.secret not in done.stderr and token not in done.stderr
        with PeaceFileSystem(cluster.http_address, token=token) as files:
            written = [each for kind in ("client", "token") for each in files.list(f"/user/etl/{kind}")]
            assert len(written) > 4
            assert {each.owner for each in written} == {"etl"}


def test_credential_settings_are_hadoops_own() -> None:
    by_client = as_dict(credential_settings("coordinator:9870", OAuth2Client("an id", "a secret")))
    prefix = "spark.hadoop.dfs.webhdfs.oauth2."
    assert by_client[prefix + "refresh.url"] == "http://coordinator:9870/v1/oauth2/token"
    assert by_client[prefix + "credential"] == "a secret"
    by_token = as_dict(credential_settings("coordinator:9870", "a.b.c"))
    assert by_token[prefix + "refresh.token"] == "a.b.c"
    assert "a secret" not in repr(OAuth2Client("an id", "a secret"))
