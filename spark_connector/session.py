"""The settings with which Spark checkpoints on peacefs and survives a restart of the coordinator.

Spark gets no jar and no class of ours. The format of state checkpoints stays Spark's default, 1, or 2 in Real-time
Mode (decision 64), unless the caller names the kind of query (`query_settings`). Each setting is a row of one
table, with its reason and the Spark version that introduced it. An older Spark is not given the setting.

If the cluster requires authentication, Spark shows a token (PEACEFS_TOKEN_FILE) or fetches its own (`client`).

    spark = configure(SparkSession.builder.appName("orders"), "coordinator:9870").getOrCreate()
    stream.writeStream.option("checkpointLocation", "webhdfs://coordinator:9870/checkpoints/orders")
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from peacefs.client.control.addresses import NAMESERVICE, CoordinatorAddress, name_cluster, parse_address
from peacefs.client.control.token_source import TokenSource
from peacefs.protocol.errors import BadRequest
from peacefs.runtime.tls_variables import TRUSTSTORE_PASSWORD, TRUSTSTORE_VARIABLE

from .query_settings import QUERIES, REAL_TIME, REAL_TIME_SINCE, Setting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STREAMING = "spark.sql.streaming."
_STATE_STORE = _STREAMING + "stateStore."
_HADOOP = "spark.hadoop."

ANY_SPARK = "any"
_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+){1,2}")

# Pairs of a sleep in ms and a number of tries: 5 s in short steps for a lost connection, then 60 s for a
# coordinator that starts and waits for its datanodes, then 60 s for a standby or an operator.
_RETRY_STEPS = "250,20,1000,60,5000,12"
_FAILOVER_PROVIDER = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
#: The number of tasks of one JVM that may write at once; each keeps a connection to the coordinator. (Hadoop's
#: client closes connections to datanodes after each file, whatever is set.)
_KEPT_CONNECTIONS = "-Dhttp.maxConnections=64"
#: The oldest supported Spark: older versions write no change logs of state.
OLDEST_SPARK = (3, 5)


@dataclass(frozen=True, slots=True)
class OAuth2Client:
    """The id and secret of a program, as `peacefs token client create` prints them."""

    id: str
    secret: str = field(repr=False)


#: What Hadoop's WebHDFS client authenticates with: a bearer token, or a client that fetches tokens.
Credential = str | OAuth2Client


def credential_settings(address: str, credential: Credential, truststore: str | None = None) -> list[Setting]:
    """Return the settings that make Hadoop's OAuth2 providers present the credential. Raises BadRequest.

    The settings contain the credential. Over TLS the providers trust only what the JVM trusts, whatever Hadoop's
    own settings say. So the JVM is given `truststore`, by default the file that PEACEFS_TRUSTSTORE names.
    """
    oauth2, provider = _HADOOP + "dfs.webhdfs.oauth2.", "org.apache.hadoop.hdfs.web.oauth2.Conf"
    if isinstance(credential, OAuth2Client):
        of_kind = {
            "access.token.provider": provider + "CredentialBasedAccessTokenProvider",
            "client.id": credential.id,
            "credential": credential.secret,
        }
    else:
        of_kind = {
            "access.token.provider": provider + "RefreshTokenBasedAccessTokenProvider",
            "client.id": "peacefs",
            "refresh.token": credential,
            "refresh.token.expires.ms.since.epoch": "0",
        }
    # Hadoop's providers accept one address only.
    where = parse_address(address).each[0].http + "/v1/oauth2/token"
    reason = "the cluster asks who reads and writes"
    return [
        *(
            Setting(oauth2 + key, value, ANY_SPARK, reason)
            for key, value in ({"enabled": "true", "refresh.url": where} | of_kind).items()
        ),
        Setting(
            "spark.redaction.regex",
            "(?i)secret|password|token|access[.]?key|oauth2[.]credential",
            "2.1.2",
            "Spark's pages and logs do not show the client's secret",
        ),
        *_trust_of_jvms(address, truststore or os.environ.get(TRUSTSTORE_VARIABLE)),
    ]


def _trust_of_jvms(address: str, truststore: str | None) -> list[Setting]:
    if truststore is None or not parse_address(address).tls:
        return []
    trust = {"": truststore, "Type": "PKCS12", "Password": TRUSTSTORE_PASSWORD}
    options = [_KEPT_CONNECTIONS, *(f"-Djavax.net.ssl.trustStore{name}={value}" for name, value in trust.items())]
    reason = (
        "Hadoop fetches tokens with what the JVM trusts; to trust others besides, add the CA to Java's own file"
    )
    return [
        Setting(f"spark.{side}.defaultJavaOptions", " ".join(options), "3.0.0", reason)
        for side in ("driver", "executor")
    ]


def settings(
    address: str,
    checkpoint_root: str = "/checkpoints",
    spark_version: str | None = None,
    truststore: str | None = None,
    query: str | None = None,
) -> list[Setting]:
    """Return the settings for the coordinator at `address` (`host:port` of its HTTP side, or a URI).

    For several coordinators (`a:9870,b:9870`) Spark's URIs name the cluster (`webhdfs://peacefs/path`), and
    Hadoop's client finds the leader. Without `spark_version`, returns the settings of the newest Spark. For
    `https://` or `swebhdfs://`, `truststore` holds the cluster's CA; it defaults to the file that
    PEACEFS_TRUSTSTORE names, then to Java's own trust. `query`, a key of QUERIES, adds the settings of that
    kind of query. Raises BadRequest, also if this Spark has no such queries.
    """
    table = [*_table(address, checkpoint_root), *_query_settings(query)]
    truststore = truststore or os.environ.get(TRUSTSTORE_VARIABLE)
    if parse_address(address).tls and truststore:
        table += truststore_settings(truststore)
    if spark_version is None:
        return table
    wanted = _version(spark_version)[:2]
    if wanted < OLDEST_SPARK:
        oldest = ".".join(map(str, OLDEST_SPARK))
        raise BadRequest(f"Spark {spark_version} writes no change logs of state: {oldest} is the oldest that does")
    if query == REAL_TIME and wanted < REAL_TIME_SINCE:
        oldest = ".".join(map(str, REAL_TIME_SINCE))
        raise BadRequest(f"Spark {spark_version} has no Real-time Mode: {oldest} is the oldest that has it")
    # "4.1" stands for all of 4.1.x.
    return [setting for setting in table if setting.since == ANY_SPARK or _version(setting.since)[:2] <= wanted]


def _query_settings(query: str | None) -> tuple[Setting, ...]:
    if query is None:
        return ()
    if query not in QUERIES:
        raise BadRequest(f"{query!r} is no kind of query: {', '.join(QUERIES)} are")
    return QUERIES[query]


def truststore_settings(location: str) -> list[Setting]:
    """Return Hadoop's settings for a PKCS12 truststore, which has to exist on every machine."""
    prefix = _HADOOP + "ssl.client.truststore."
    return [
        Setting(
            prefix + "location",
            location,
            ANY_SPARK,
            "the CA of the services' certificates, on every machine of the job",
        ),
        Setting(prefix + "type", "PKCS12", ANY_SPARK, "Hadoop takes it for Java's older format otherwise"),
        Setting(
            prefix + "password",
            TRUSTSTORE_PASSWORD,
            ANY_SPARK,
            "Java requires one; nothing in a truststore is secret",
        ),
    ]


def _version(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: "4.0.0.dev1" gives the first three. Raises BadRequest."""
    found = _VERSION.match(text)
    if found is None:
        raise BadRequest(f"{text!r} is no version of Spark: 4.1 or 4.1.2 is one")
    return tuple(int(number) for number in found[0].split("."))


def _retry_settings() -> list[Setting]:
    return [
        Setting(
            _HADOOP + "dfs.http.client.retry.policy.enabled",
            "true",
            ANY_SPARK,
            "without it the WebHDFS client tries once, and a restart of the coordinator fails the batch",
        ),
        Setting(
            _HADOOP + "dfs.http.client.retry.policy.spec",
            _RETRY_STEPS,
            ANY_SPARK,
            "retries start after 0.25 s and last about two minutes; Hadoop's own start after 10 s",
        ),
    ]


def _failover_settings(where: CoordinatorAddress) -> list[Setting]:
    """Return the settings of a logical URI, for several coordinators.

    Hadoop's client asks each address until it finds the leader. It ignores the retry settings then.
    """
    names = [f"c{number}" for number, _ in enumerate(where.each, 1)]
    of_cluster = "the coordinators of the cluster by name; Hadoop's client finds the one that leads"
    kind = "https" if where.tls else "http"
    rows = {
        "dfs.nameservices": (NAMESERVICE, of_cluster),
        f"dfs.ha.namenodes.{NAMESERVICE}": (",".join(names), of_cluster),
        **{
            f"dfs.namenode.{kind}-address.{NAMESERVICE}.{name}": (one.netloc, of_cluster)
            for name, one in zip(names, where.each, strict=True)
        },
        f"dfs.client.failover.proxy.provider.{NAMESERVICE}": (_FAILOVER_PROVIDER, of_cluster),
        "dfs.http.client.failover.sleep.base.millis": (
            "100",
            "between two leaders it asks again after 0.1 s at first; Hadoop's own pause is 0.5 s, doubled",
        ),
        "dfs.http.client.failover.sleep.max.millis": ("1000", "and after at most 1 s; Hadoop's own is 15 s"),
        "dfs.http.client.retry.max.attempts": ("60", "for a minute without a leader; Hadoop gives up after 10"),
    }
    return [Setting(_HADOOP + key, value, ANY_SPARK, reason) for key, (value, reason) in rows.items()]


def _table(address: str, checkpoint_root: str) -> list[Setting]:
    where = parse_address(address)
    return [
        Setting(
            _STREAMING + "checkpointLocation",
            where.webhdfs + checkpoint_root,
            "2.0.0",
            "a query that names no checkpointLocation checkpoints below this directory, under its query name",
        ),
        *(_failover_settings(where) if where.others else _retry_settings()),
        Setting(
            _HADOOP + "dfs.webhdfs.socket.connect-timeout",
            "5s",
            ANY_SPARK,
            "a host that is gone is noticed in 5 s, not 60, and the retry goes to another datanode",
        ),
        *(
            Setting(
                f"spark.{side}.defaultJavaOptions",
                _KEPT_CONNECTIONS,
                "3.0.0",
                "Java keeps 5 idle connections to a host: 16 tasks at once opened 191 to the coordinator in 12 "
                "batches of 32 partitions, with this 23",
            )
            for side in ("driver", "executor")
        ),
        Setting(
            _STATE_STORE + "providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
            "3.2.0",
            "state is kept off the heap, and only changes are written",
        ),
        Setting(
            _STATE_STORE + "rocksdb.changelogCheckpointing.enabled",
            "true",
            "3.5.0",
            "a commit writes one small change log a store; snapshots are uploaded in the background",
        ),
        Setting(
            _STATE_STORE + "maintenanceInterval",
            "5s",
            "2.0.0",
            "as often, not once a minute, snapshots are uploaded and old versions deleted: a restart opens each "
            "change log since the last snapshot, twice, one after another",
        ),
        Setting(
            _STREAMING + "minBatchesToRetain",
            "100",
            "2.1.1",
            "so many batches are kept, and `peacefs checkpoint rollback` can go back as far",
        ),
    ]


def as_dict(table: Iterable[Setting]) -> dict[str, str]:
    return {setting.key: setting.value for setting in table}


def installed_spark() -> str | None:
    """Return the version of the installed PySpark, or None."""
    try:
        return version("pyspark")
    except PackageNotFoundError:
        return None


def configure(
    builder: SparkSession.Builder,
    address: str,
    checkpoint_root: str = "/checkpoints",
    *,
    token: str | None = None,
    client: OAuth2Client | None = None,
    truststore: str | None = None,
    query: str | None = None,
) -> SparkSession.Builder:
    """Apply the settings that this Spark knows to `builder`. Settings made after this call win.

    With a `client` Spark fetches new tokens for as long as it runs; with a `token` it works until the token
    expires. Without either, the token comes from PEACEFS_TOKEN_FILE or PEACEFS_TOKEN, if set.
    `query` is the kind of the session's queries: a key of QUERIES. Raises BadRequest.
    """
    table = settings(address, checkpoint_root, installed_spark(), truststore, query)
    credential: Credential = client or TokenSource.of(token).current()
    if credential:
        table += credential_settings(address, credential, truststore)
    # Tools in this process receive Spark's URIs too.
    name_cluster(parse_address(address))
    for setting in table:
        builder = builder.config(setting.key, setting.value)
    return builder
