"""Verdicts on real checkpoints are compared with Spark, which starts queries on them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from peacefs.protocol.errors import QueryFailed
from peacefs.spark_connector.checkpoints.catalogue import find_roots, read_layout, summarise
from peacefs.spark_connector.checkpoints.findings import Verdict
from peacefs.spark_connector.checkpoints.formats.changelog import Changelog
from peacefs.spark_connector.checkpoints.formats.codecs import codec_of
from peacefs.spark_connector.checkpoints.inspection import Inspection
from peacefs.spark_connector.checkpoints.rehearsal import rehearse
from peacefs.spark_connector.checkpoints.tree import LocalTree
from peacefs.spark_connector.checkpoints.verification import verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

_STATE_STORE = "spark.sql.streaming.stateStore."
PARTS = 4


@dataclass(frozen=True)
class Query:
    """Counts words of a directory, one file per batch, with a given checkpoint."""

    spark: SparkSession
    source: Path
    state_format: int
    changelogs: bool

    def run(self, checkpoint: Path) -> str | None:
        """Run to the end of the input; return the failure, if any."""
        from pyspark.errors import PySparkException

        self.spark.conf.set(f"{_STATE_STORE}checkpointFormatVersion", str(self.state_format))
        self.spark.conf.set(f"{_STATE_STORE}rocksdb.changelogCheckpointing.enabled", str(self.changelogs).lower())
        lines = self.spark.readStream.option("maxFilesPerTrigger", 1).text(f"file://{self.source}")
        counts = lines.groupBy("value").count().writeStream.format("noop").outputMode("update")
        try:
            query = counts.option("checkpointLocation", f"file://{checkpoint}").trigger(availableNow=True).start()
            query.awaitTermination()
        except PySparkException as failure:
            return str(failure)
        return None


def put(source: Path, part: int) -> None:
    (source / f"{part}.txt").write_text("".join(f"{row % 7}\n" for row in range(20)))
    os.utime(source / f"{part}.txt", (part + 1, part + 1))


def judge(root: Path) -> Verdict:
    tree = LocalTree()
    return verify(Inspection(tree, read_layout(tree, str(root))))


def remove(path: Path) -> None:
    """Remove a file and its checksum file."""
    for beside in path.parent.glob(f".{path.name}*.crc"):
        beside.unlink()
    path.with_name(f"{path.name}.crc").unlink(missing_ok=True)
    path.unlink()


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    remove(path)
    path.write_bytes(data)


def newest(root: Path, pattern: str) -> Path:
    return max(root.glob(pattern), key=lambda path: int(path.name.partition(".")[0].partition("_")[0]))


@pytest.fixture(scope="module", params=["format 1", "format 2", "snapshots alone"])
def made(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Query, Path]]:
    """Yield a query that has read all its files except one, and its checkpoint."""
    directory = tmp_path_factory.mktemp("real")
    query = Query(
        spark, directory / "in", 2 if request.param == "format 2" else 1, request.param != "snapshots alone"
    )
    query.source.mkdir()
    for part in range(PARTS):
        put(query.source, part)
    keys = ("checkpointFormatVersion", "rocksdb.changelogCheckpointing.enabled")
    before = {key: spark.conf.get(_STATE_STORE + key) for key in keys}
    assert query.run(directory / "checkpoint") is None
    put(query.source, PARTS)
    yield query, directory / "checkpoint"
    for key, value in before.items():
        spark.conf.set(_STATE_STORE + key, value)


def test_every_file_of_a_real_checkpoint_is_known_and_all_is_good(made: tuple[Query, Path]) -> None:
    query, root = made
    layout = read_layout(LocalTree(), str(root))
    assert [entry.path for entry in layout.foreign + layout.temporary] == []
    inspection = Inspection(LocalTree(), layout)
    verdict = verify(inspection)
    assert (verdict.batch, verdict.last_good, verdict.restarts, verdict.findings) == (
        PARTS - 1,
        PARTS - 1,
        True,
        [],
    )
    for files in layout.stores.values():
        for entry in files.changes.values():
            contents = inspection.changes(entry)
            assert isinstance(contents, Changelog) and contents.form == (3 if query.state_format == 2 else 1)
    summary = summarise(inspection)
    assert summary.format == query.state_format
    assert [operator.name for operator in summary.operators] == ["stateStoreSave"]
    assert list(find_roots(LocalTree(), str(root.parent))) == [str(root)]


def test_the_state_of_a_batch_is_loaded_with_sparks_own_reader(made: tuple[Query, Path], tmp_path: Path) -> None:
    query, root = made
    layout = read_layout(LocalTree(), str(root))
    for batch in (1, PARTS - 1):
        (loaded,) = rehearse(query.spark, f"file://{root}", Inspection(LocalTree(), layout), batch)
        assert (loaded.operator, loaded.name, loaded.store, loaded.rows) == (0, "stateStoreSave", "default", 7)
    shutil.copytree(root, tmp_path / "harmed")
    remove(newest(tmp_path / "harmed", "state/0/1/*.zip" if not query.changelogs else "state/0/1/*.changelog"))
    harmed = read_layout(LocalTree(), str(tmp_path / "harmed"))
    with pytest.raises(QueryFailed, match="cannot load the state of operator 0"):
        rehearse(query.spark, f"file://{tmp_path}/harmed", Inspection(LocalTree(), harmed), PARTS - 1)


_DAMAGE: list[tuple[str, Callable[[Path], None]]] = [
    ("commits/*[0-9]", remove),
    ("commits/*[0-9]", damage),
    ("offsets/2", remove),
    ("state/0/_metadata/metadata", damage),
    ("state/0/0/_metadata/schema", damage),
    ("state/0/1/*.changelog", remove),
    ("state/0/1/*.changelog", damage),
    ("state/0/1/*.zip", damage),
]


@pytest.mark.parametrize(("pattern", "harm"), _DAMAGE, ids=[f"{p}-{h.__name__}" for p, h in _DAMAGE])
def test_a_query_starts_again_exactly_when_the_verdict_says_so(
    made: tuple[Query, Path], tmp_path: Path, pattern: str, harm: Callable[[Path], None]
) -> None:
    query, root = made
    harmed = tmp_path / "checkpoint"
    shutil.copytree(root, harmed)
    if not list(harmed.glob(pattern)):
        assert pattern.endswith((".zip", ".changelog")), "of these a query has one kind"
        return
    harm(harmed / pattern if "*" not in pattern else newest(harmed, pattern))
    verdict = judge(harmed)
    failure = query.run(harmed)
    assert (failure is None) is verdict.restarts, (failure, verdict)
    if verdict.restarts:
        assert judge(harmed).batch == PARTS


@pytest.mark.parametrize("codec", ["lz4", "lzf", "snappy", "zstd"])
@pytest.mark.parametrize("provider", ["RocksDB", "HDFSBacked"])
def test_state_is_looked_into_whichever_codec_spark_packs_it_with(
    spark: SparkSession, tmp_path: Path, codec: str, provider: str
) -> None:
    told = {
        "compression.codec": codec,
        "providerClass": f"org.apache.spark.sql.execution.streaming.state.{provider}StateStoreProvider",
    }
    before = {key: spark.conf.get(_STATE_STORE + key) for key in told}
    query = Query(spark, tmp_path / "in", 1, changelogs=True)
    query.source.mkdir()
    for part in range(2):
        put(query.source, part)
    try:
        for key, value in told.items():
            spark.conf.set(_STATE_STORE + key, value)
        assert query.run(tmp_path / "checkpoint") is None
    finally:
        for key, value in before.items():
            spark.conf.set(_STATE_STORE + key, value)
    inspection = Inspection(LocalTree(), read_layout(LocalTree(), str(tmp_path / "checkpoint")))
    verdict = verify(inspection)
    assert (verdict.batch, verdict.restarts, verdict.findings, verdict.notes) == (1, True, [], [])
    records = 0
    for files in inspection.layout.stores.values():
        for entry in files.changes.values():
            assert codec_of(Path(entry.path).read_bytes()) == codec
            changes = inspection.changes(entry)
            assert isinstance(changes, Changelog)
            records += changes.records
    assert records == 2 * 7, "seven words a batch"
    last = newest(
        tmp_path / "checkpoint", "state/0/1/*.changelog" if provider == "RocksDB" else "state/0/1/*.delta"
    )
    whole = last.read_bytes()
    remove(last)
    last.write_bytes(whole[: len(whole) // 2])
    assert judge(tmp_path / "checkpoint").last_good == 0
