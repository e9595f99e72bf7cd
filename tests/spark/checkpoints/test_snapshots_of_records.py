"""Snapshots of the provider without RocksDB, as Spark's maintenance writes them, one per codec.

Maintenance handles only stores of running queries. So four queries run at once, and the tests wait for it once.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.long_runs import often
from support.state_maintenance import maintenance_settled_anew
from support.waiting import wait_until

from peacefs.spark_connector.checkpoints.catalogue import read_layout
from peacefs.spark_connector.checkpoints.findings import Verdict
from peacefs.spark_connector.checkpoints.formats.changelog import Changelog
from peacefs.spark_connector.checkpoints.formats.codecs import codec_of
from peacefs.spark_connector.checkpoints.inspection import Inspection
from peacefs.spark_connector.checkpoints.tree import LocalTree
from peacefs.spark_connector.checkpoints.verification import verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

CODECS = ("lz4", "lzf", "snappy", "zstd")
_STATE_STORE = "spark.sql.streaming.stateStore."
_PARTS = often(3, 4)
_WORDS = 7


def put(source: Path, part: int) -> None:
    staged = source.with_name("staged")
    staged.write_text("".join(f"{row % _WORDS}\n" for row in range(20)))
    staged.replace(source / f"{part}.txt")


def start(spark: SparkSession, source: Path, root: Path, codec: str) -> StreamingQuery:
    spark.conf.set(f"{_STATE_STORE}compression.codec", codec)
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(f"file://{source}")
    counts = lines.groupBy("value").count().writeStream.format("noop").outputMode("update")
    return counts.option("checkpointLocation", f"file://{root}").start()


def remove(path: Path) -> None:
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    path.unlink()


def cut(path: Path) -> None:
    whole = path.read_bytes()
    remove(path)
    path.write_bytes(whole[: len(whole) // 2])


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of words, the first of which exist at the start."""
    directory = tmp_path_factory.mktemp("records") / "in"
    directory.mkdir()
    for part in range(_PARTS):
        put(directory, part)
    return directory


@pytest.fixture(scope="module")
def roots(spark: SparkSession, source: Path) -> Iterator[Path]:
    """Yield a checkpoint per codec, named after it: each store has a snapshot, and later changes.

    The session keeps the settings with which they were made while the tests use them.
    """
    directory = source.parent
    told = {
        "compression.codec": "lz4",
        "maintenanceInterval": "500ms",
        "minDeltasForSnapshot": "2",
        "providerClass": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    }
    before = {key: spark.conf.get(_STATE_STORE + key) for key in told}
    queries = []
    with maintenance_settled_anew(spark):
        try:
            for key, value in told.items():
                spark.conf.set(_STATE_STORE + key, value)
            queries = [start(spark, source, directory / codec, codec) for codec in CODECS]
            for query in queries:
                query.processAllAvailable()
            wait_until(
                lambda: all(
                    list((directory / codec).glob(f"state/0/{partition}/*.snapshot"))
                    for codec in CODECS
                    for partition in range(2)
                ),
                "each store has a snapshot",
            )
            # A second snapshot would come with the third batch after the first.
            put(source, _PARTS)
            for query in queries:
                query.processAllAvailable()
                query.stop()
            yield directory
        finally:
            for query in queries:
                query.stop()
            for key, value in before.items():
                spark.conf.set(_STATE_STORE + key, value)


def judge(root: Path) -> Verdict:
    tree = LocalTree()
    return verify(Inspection(tree, read_layout(tree, str(root))))


@pytest.mark.parametrize("codec", CODECS)
def test_a_snapshot_is_looked_into_whichever_codec_packs_it(roots: Path, codec: str) -> None:
    inspection = Inspection(LocalTree(), read_layout(LocalTree(), str(roots / codec)))
    verdict = verify(inspection)
    assert (verdict.batch, verdict.restarts, verdict.findings, verdict.notes) == (_PARTS, True, [], [])
    records = 0
    for files in inspection.layout.stores.values():
        (entry,) = files.snapshots.values()
        assert codec_of(Path(entry.path).read_bytes()) == codec
        contents = inspection.changes(entry)
        assert isinstance(contents, Changelog)
        records += contents.records
    assert records == _WORDS


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("harmed", ["nothing", "the snapshot"])
def test_a_query_starts_again_from_its_snapshot_exactly_when_the_verdict_says_so(
    spark: SparkSession, roots: Path, source: Path, tmp_path: Path, codec: str, harmed: str
) -> None:
    """The files before the snapshot are gone, as Spark removes them later, so the state can come only from it."""
    from pyspark.errors import PySparkException

    root = tmp_path / "checkpoint"
    shutil.copytree(roots / codec, root)
    for snapshot in root.glob("state/0/*/*.snapshot"):
        last = int(snapshot.name.removesuffix(".snapshot"))
        for version in range(1, last + 1):
            remove(snapshot.with_name(f"{version}.delta"))
        if harmed == "the snapshot" and snapshot.parent.name == "1":
            cut(snapshot)
    verdict = judge(root)
    assert verdict.restarts is (harmed == "nothing"), verdict
    assert any(".snapshot" in str(finding) for finding in verdict.findings) is not verdict.restarts, verdict
    # The same files, which a query knows by their paths, and one new file.
    put(source, _PARTS + 1)
    query = start(spark, source, root, codec)
    if verdict.restarts:
        query.processAllAvailable()
        query.stop()
        assert judge(root).batch == _PARTS + 1
    else:
        with pytest.raises(PySparkException):
            query.processAllAvailable()
        query.stop()
