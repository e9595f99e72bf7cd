"""What Spark must be told so that it checkpoints on peacefs and rides out a restart of the coordinator.

Nothing is added to Spark: no jar, no class of ours. Each setting is a row of one table with its reason and
the Spark version that knows it, so that the table can be printed and argued about. Keys that an older Spark
does not know are passed over by it in silence.

    spark = configure(SparkSession.builder.appName("orders"), "coordinator:9870").getOrCreate()
    stream.writeStream.option("checkpointLocation", "webhdfs://coordinator:9870/checkpoints/orders")
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from peacefs.client.addresses import parse_address

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STREAMING = "spark.sql.streaming."
_STATE_STORE = _STREAMING + "stateStore."
_HADOOP = "spark.hadoop."

ANY_SPARK = "any"

# Sleep in ms and number of tries, in pairs: 5 s in short steps for a connection that was cut, then 60 s for a
# coordinator that starts and waits for its datanodes, then 60 s for a standby or an operator.
_RETRY_STEPS = "250,20,1000,60,5000,12"


@dataclass(frozen=True, slots=True)
class Setting:
    """One configuration key. `since` is the Spark version that introduced it; Hadoop's own keys bear ANY_SPARK."""

    key: str
    value: str
    since: str
    reason: str


def settings(address: str, checkpoint_root: str = "/checkpoints") -> list[Setting]:
    """The table for the coordinator at `address` (`host:port` of its HTTP side, or a URI). Raises BadRequest."""
    return [
        Setting(
            _STREAMING + "checkpointLocation",
            parse_address(address).webhdfs + checkpoint_root,
            "2.0.0",
            "a query that names no checkpointLocation checkpoints below this directory, under its query name",
        ),
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
        Setting(
            _HADOOP + "dfs.webhdfs.socket.connect-timeout",
            "5s",
            ANY_SPARK,
            "a host that is gone is noticed in 5 s, not 60, and the retry goes to another datanode",
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
            _STATE_STORE + "checkpointFormatVersion",
            "1",
            "4.0.0",
            "with version 2 Spark 4.3 can never restart a query that was killed between its sink's commit and its "
            "own, if the sink skips batches that it has, as the file sink does; so not its unique file names",
        ),
    ]


def as_dict(table: Iterable[Setting]) -> dict[str, str]:
    """Key and value of each setting."""
    return {setting.key: setting.value for setting in table}


def configure(
    builder: SparkSession.Builder, address: str, checkpoint_root: str = "/checkpoints"
) -> SparkSession.Builder:
    """Apply the table to `builder` before its `getOrCreate`; what is set on it afterwards wins."""
    for setting in settings(address, checkpoint_root):
        builder = builder.config(setting.key, setting.value)
    return builder
