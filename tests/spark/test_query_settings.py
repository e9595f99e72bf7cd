"""The settings of each kind of query (`query_settings`), and the reason for each, with the installed Spark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from oracles.query_starts import REAL_TIME, QueryStarts, word

from peacefs.protocol.errors import BadRequest
from peacefs.spark_connector.query_settings import QUERIES
from peacefs.spark_connector.session import as_dict, settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_SECONDS = 4


def own(kind: str | None) -> dict[str, str]:
    """Return what a session can be told at any time."""
    told = as_dict(settings("c", query=kind))
    return {key: value for key, value in told.items() if key.startswith("spark.sql.streaming.")}


def seconds_of(number: int) -> range:
    # A row of second 0 is late, because watermarks begin there.
    return range(600 + number * 100, 600 + number * 100 + _SECONDS)


def put(directory: Path, number: int) -> None:
    directory.mkdir(exist_ok=True)
    path = directory / f"{number}.txt"
    path.write_text("".join(f"{second}\n" for second in seconds_of(number)))
    os.utime(path, (1000 + number, 1000 + number))


def lines(spark: SparkSession, directory: Path) -> DataFrame:
    files = spark.readStream.option("maxFilesPerTrigger", 1).text(f"file://{directory}")
    return files.selectExpr("timestamp_seconds(bigint(value)) AS at").withWatermark("at", "1 second")


def run(rows: DataFrame, root: Path) -> str | None:
    """Run a query with a file sink to the end of its input; return its failure."""
    from pyspark.errors import StreamingQueryException

    writer = rows.writeStream.format("parquet").option("checkpointLocation", f"file://{root}/checkpoint")
    try:
        writer.option("path", f"file://{root}/out").trigger(availableNow=True).start().awaitTermination()
    except StreamingQueryException as failure:
        return str(failure)
    return None


def session(spark: SparkSession, kind: str) -> SparkSession:
    made = spark.newSession()
    for key, value in own(kind).items():
        made.conf.set(key, value)
    return made


def test_real_time_mode_starts_with_its_settings_and_not_with_those_of_micro_batches(
    spark: SparkSession, tmp_path: Path
) -> None:
    starts = QueryStarts(spark.newSession(), tmp_path / "work")
    words = [word(0), word(1)]
    refused = starts.run(tmp_path / "1", REAL_TIME, words, query="distinct", settings=own("micro-batch"))
    assert f"{_FORMAT} must be 2 or above" in (refused.failure or "")
    started = starts.run(tmp_path / "2", REAL_TIME, words, query="distinct", settings=own("real-time"))
    assert (started.failure, started.words) == (None, words)
    assert (tmp_path / "2/commits/0").read_text().startswith("v2")


def test_query_with_a_file_sink_survives_a_crash_before_its_commit_with_format_1_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    failures = {}
    for kind in ("micro-batch", "real-time"):
        root, own_session = tmp_path / kind, session(spark, kind)
        for number in range(2):
            put(root.with_suffix(".in"), number)
        counts = lines(own_session, root.with_suffix(".in")).groupBy("at").count()
        assert run(counts, root) is None
        last = max(int(path.name) for path in (root / "checkpoint/commits").iterdir() if path.name.isdigit())
        # The sink has the batch; the query died before its own commit.
        for name in (str(last), f".{last}.crc"):
            (root / f"checkpoint/commits/{name}").unlink()
        put(root.with_suffix(".in"), 2)
        failures[kind] = run(counts, root)
        if failures[kind] is None:
            seconds = [second for number in range(2) for second in seconds_of(number)]
            rows = own_session.read.parquet(f"file://{root}/out").selectExpr("unix_seconds(at)", "count")
            assert sorted(map(tuple, rows.collect()))[: len(seconds)] == [(second, 1) for second in seconds]
    assert failures["micro-batch"] is None
    # Spark assumes that the commit of the last batch names its state, and there is none.
    assert "CheckpointInfo" in (failures["real-time"] or ""), "format 2 fits file sinks now: see decision 7"


def test_join_has_one_store_a_partition_with_its_settings(spark: SparkSession, tmp_path: Path) -> None:
    stores = {}
    for kind in ("micro-batch", "join"):
        root, own_session = tmp_path / kind, session(spark, kind)
        put(root.with_suffix(".in"), 0)
        left = lines(own_session, root.with_suffix(".in"))
        right = lines(own_session, root.with_suffix(".in")).withColumnRenamed("at", "then")
        assert run(left.join(right, left["at"] == right["then"]), root) is None
        partition = root / "checkpoint/state/0/1"
        logs = [path for path in partition.rglob("*.changelog") if not path.name.startswith(".")]
        stores[kind] = {path.parent.name for path in logs if path.stem == "1"}
        assert len(own_session.read.parquet(f"file://{root}/out").collect()) == _SECONDS
    assert {kind: len(names) for kind, names in stores.items()} == {"micro-batch": 4, "join": 1}, stores


def test_kind_of_query_adds_what_a_spark_knows_and_is_refused_by_a_spark_without_it() -> None:
    plain = as_dict(settings("c"))
    assert _FORMAT not in plain
    for kind, version in ((kind, version) for kind in QUERIES for version in ("4.1", "4.2", "4.3")):
        told = as_dict(settings("c", spark_version=version, query=kind))
        assert plain.items() <= told.items()
        assert told[_FORMAT] == ("2" if kind == "real-time" else "1")
    assert as_dict(settings("c", spark_version="3.5", query="join")) == plain, "neither key exists in 3.5"
    with pytest.raises(BadRequest, match="no Real-time Mode"):
        settings("c", spark_version="4.0.1", query="real-time")
    with pytest.raises(BadRequest, match=r"Spark 3\.4 writes no change logs"):
        settings("c", spark_version="3.4", query="join")
    with pytest.raises(BadRequest, match="micro-batch, join, real-time"):
        settings("c", query="batch")
