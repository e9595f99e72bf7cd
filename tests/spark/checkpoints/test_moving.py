"""Checkpoints are forked, exported and imported: whole or not at all, and independent of the original."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import Result
from support import checkpoints as made
from support.mounts import fill, mounted

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.spark_connector.checkpoints.moving import moved
from peacefs.spark_connector.runs import begin_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Peacefs = Callable[..., Result]


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.cluster
def test_a_checkpoint_goes_from_cluster_to_archive_to_machine_and_back(
    cluster: LocalCluster, peacefs: Peacefs, tmp_path: Path
) -> None:
    address = f"--coordinator={cluster.http_address}"
    with PeaceFileSystem(cluster.http_address) as files:
        for path, data in made.checkpoint(root="/moving/orders").files.items():
            files.write(path, data)
        assert peacefs("fork", "/moving/orders", "/moving/trial/a", address).exit_code == 0
        files.delete("/moving/orders", recursive=True)
        exported = peacefs("export", "/moving/trial/a", str(tmp_path / "a.zip"), address)
        assert exported.exit_code == 0 and " 51 files" in exported.stdout
        assert [entry.name for entry in files.list("/moving/trial")] == ["a"]
        here = f"file://{tmp_path}/here"
        assert peacefs("import", str(tmp_path / "a.zip"), here).exit_code == 0
        assert peacefs("verify", here).exit_code == 0
        assert peacefs("fork", here, f"{here}-2").exit_code == 0
        assert peacefs("import", str(tmp_path / "a.zip"), "/moving/back", address).exit_code == 0
        assert peacefs("verify", "/moving/back", address).exit_code == 0
        assert [entry.name for entry in files.list("/moving")] == ["back", "trial"]
    assert names(tmp_path) == ["a.zip", "here", "here-2"]
    mixed = peacefs("fork", "/moving/back", f"file://{tmp_path}/x", address)
    assert mixed.exit_code == 1 and "export and import" in mixed.stderr


def test_the_checksums_of_an_archive_are_those_of_coreutils(local: Path, peacefs: Peacefs, tmp_path: Path) -> None:
    assert peacefs("export", f"file://{local}", str(tmp_path / "a.zip")).exit_code == 0
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        archive.extractall(tmp_path / "out")
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=tmp_path / "out", check=True)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_an_archive_that_is_cut_short_leaves_nothing(
    local: Path, peacefs: Peacefs, tmp_path: Path, share: float
) -> None:
    archive = tmp_path / "a.zip"
    peacefs("export", f"file://{local}", str(archive))
    archive.write_bytes(archive.read_bytes()[: int(archive.stat().st_size * share)])
    refused = peacefs("import", str(archive), f"file://{tmp_path}/new")
    assert refused.exit_code == 1 and "cut short" in refused.stderr
    assert "new" not in " ".join(names(tmp_path))


def test_an_archive_for_which_there_is_no_room_leaves_nothing(
    local: Path, peacefs: Peacefs, tmp_path: Path
) -> None:
    with mounted(tmp_path / "disk", 64 << 10) as disk:
        others = fill(disk)
        os.truncate(others, 48 << 10)
        refused = peacefs("export", f"file://{local}", str(disk / "a.zip"))
        assert refused.exit_code == 1
        assert refused.stderr == f"peacefs: checkpoint: {disk}/a.zip was not made: No space left on device\n"
        assert names(disk) == [others.name]


def test_an_archive_has_its_name_when_it_is_on_the_disk(
    local: Path, peacefs: Peacefs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power loss right then would leave exactly what was synced before."""
    synced: list[list[str]] = []

    def fsync(descriptor: int) -> None:
        synced.append([Path(f"/proc/self/fd/{descriptor}").readlink().name, *names(tmp_path / "out")])

    (tmp_path / "out").mkdir()
    monkeypatch.setattr("os.fsync", fsync)
    assert peacefs("export", f"file://{local}", str(tmp_path / "out" / "a.zip")).exit_code == 0
    assert synced == [[".a.zip.tmp", ".a.zip.tmp"], ["out", "a.zip"]]


def test_an_archive_whose_content_changed_leaves_nothing(local: Path, peacefs: Peacefs, tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    peacefs("export", f"file://{local}", str(archive))
    data = archive.read_bytes()
    assert data.count(made.QUERY.encode()) == 1
    archive.write_bytes(data.replace(made.QUERY.encode(), made.QUERY[::-1].encode()))
    refused = peacefs("import", str(archive), f"file://{tmp_path}/new")
    assert refused.exit_code == 1 and "is damaged: metadata" in refused.stderr
    assert "new" not in " ".join(names(tmp_path))


@pytest.mark.parametrize("path", ["../outside", "/etc/outside", "a/../../outside", "a//b"])
def test_an_archive_that_leads_out_of_its_root_is_none(peacefs: Peacefs, tmp_path: Path, path: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(f"checkpoint/{path}", b"")
        archive.writestr("SHA256SUMS", f"{'0' * 64}  checkpoint/{path}\n")
        archive.comment = b"peacefs checkpoint archive 1"
    refused = peacefs("import", str(tmp_path / "a.zip"), f"file://{tmp_path}/new")
    assert refused.exit_code == 1 and "no archive of a checkpoint" in refused.stderr


def test_nothing_is_put_over_what_is_there(local: Path, peacefs: Peacefs, tmp_path: Path) -> None:
    archive, there = tmp_path / "a.zip", tmp_path / "there"
    peacefs("export", f"file://{local}", str(archive))
    there.mkdir()
    for refused in (
        peacefs("import", str(archive), f"file://{there}"),
        peacefs("fork", f"file://{local}", f"file://{there}"),
        peacefs("export", f"file://{local}", str(archive)),
    ):
        assert refused.exit_code == 1 and "exists" in refused.stderr
    assert names(there) == []
    assert peacefs("export", "--force", f"file://{local}", str(archive)).exit_code == 0
    below = peacefs("fork", f"file://{local}", f"file://{local}/below")
    assert below.exit_code == 1 and "lies below" in below.stderr


def test_nothing_is_put_into_a_checkpoint_and_no_archive_where_none_can_be(
    local: Path, peacefs: Peacefs, tmp_path: Path
) -> None:
    archive, other = tmp_path / "a.zip", f"file://{tmp_path}/other"
    assert peacefs("export", f"file://{local}", str(archive)).exit_code == 0
    assert peacefs("import", str(archive), other).exit_code == 0
    for refused in (
        peacefs("import", str(archive), f"{other}/state/deep/down"),
        peacefs("fork", f"file://{local}", f"{other}/within"),
    ):
        assert refused.exit_code == 1 and "lies inside the checkpoint" in refused.stderr
    for target, said in ((tmp_path, "is a directory"), (tmp_path / "absent" / "a.zip", "there is no directory")):
        refused = peacefs("export", "--force", f"file://{local}", str(target))
        assert refused.exit_code == 1 and said in refused.stderr


def test_directory_that_is_no_checkpoint_is_not_moved(peacefs: Peacefs, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("x")
    for command in ("fork", "export"):
        refused = peacefs(command, f"file://{tmp_path}/notes", str(tmp_path / "new"))
        assert refused.exit_code == 1
    assert peacefs("import", str(tmp_path / "notes" / "a.txt"), f"file://{tmp_path}/new").exit_code == 1
    assert names(tmp_path) == ["notes"]


@pytest.mark.cluster
def test_a_fork_of_many_files_copies_names_and_no_data(cluster: LocalCluster, peacefs: Peacefs) -> None:
    with PeaceFileSystem(cluster.http_address) as files:
        for path, data in made.checkpoint(root="/many/part").files.items():
            files.write(path, data)
        files.copy("/many/part", "/many/orders")
        for number in range(1, 40):
            files.copy("/many/part", f"/many/orders/state/{number}")
        chunks = files.cluster_status()["chunks"]["total"]
        forked = peacefs("fork", "/many/orders", "/many/fork", f"--coordinator={cluster.http_address}")
        assert forked.exit_code == 0
        assert files.content_summary("/many/fork").files == files.content_summary("/many/orders").files == 40 * 51
        assert files.cluster_status()["chunks"]["total"] == chunks


@pytest.mark.parametrize(
    ("named", "fork", "archive"),
    [
        ("webhdfs://c:9870/ck/a", "webhdfs://c:9870/ck/b", "webhdfs://tool:1/ck/b"),
        ("webhdfs://c:9870/ck/a/.run-3-1f", "webhdfs://c:9870/ck/b", "webhdfs://tool:1/ck/b"),
        ("swebhdfs://c:9870/ck/a", "swebhdfs://c:9870/ck/b", "webhdfs://tool:1/ck/b"),
        # As older versions of fork left it, and as `cp` leaves a moved checkpoint.
        ("/ck/a", "webhdfs://tool:1/ck/b", "webhdfs://tool:1/ck/b"),
        ("webhdfs://c:9870/ck/elsewhere", "webhdfs://tool:1/ck/b", "webhdfs://tool:1/ck/b"),
        ("hdfs://name/ck/a", "webhdfs://tool:1/ck/b", "webhdfs://tool:1/ck/b"),
    ],
)
def test_a_copy_names_its_schemas_with_the_file_system_that_they_are_in(
    named: str, fork: str, archive: str
) -> None:
    """The name by which Spark reached the cluster is kept, since this program may use another one."""
    schema = "state/0/_stateSchema/default/0_x"
    data = json.dumps({"stateStoreInfo": [{"stateSchemaFilePaths": [f"{named}/{schema}"]}]}).encode()
    for source, wanted in (("webhdfs://tool:1/ck/a", fork), (None, archive)):
        new = moved(b"v2\n" + data, "webhdfs://tool:1/ck/b", source)
        (store,) = json.loads(new.partition(b"\n")[2])["stateStoreInfo"]
        assert store["stateSchemaFilePaths"] == [f"{wanted}/{schema}"]


# -- with Spark ------------------------------------------------------------------------------------


def count_by_key(spark: SparkSession, source: Path, checkpoint: str, kind: str = "bigint") -> str | None:
    """Run a `transformWithState` with state of a `kind` over all files; return its failure, if any."""
    import pandas as pd
    from pyspark.errors import PySparkException
    from pyspark.sql.streaming import StatefulProcessor

    class Counter(StatefulProcessor):  # type: ignore[misc]
        def init(self, handle: Any) -> None:
            self._count = handle.getValueState("count", f"n {kind}")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
            known = self._count.get()[0] if self._count.exists() else 0
            total = known + sum(len(frame) for frame in rows)
            self._count.update((total,))
            yield pd.DataFrame({"key": [key[0]], "n": [total]})

        def close(self) -> None:
            pass

    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(f"file://{source}")
    counts = lines.groupBy("value").transformWithStateInPandas(Counter(), "key string, n long", "update", "none")
    writer = counts.writeStream.format("noop").outputMode("update").option("checkpointLocation", checkpoint)
    try:
        writer.trigger(availableNow=True).start().awaitTermination()
    except PySparkException as failure:
        return str(failure)
    return None


def rows_of_state(spark: SparkSession, checkpoint: str) -> int:
    """Count with Spark's own state reader."""
    reader = spark.read.format("statestore").options(operatorId=0, stateVarName="count")
    return int(reader.load(checkpoint).count())


@pytest.mark.spark
@pytest.mark.cluster
def test_a_moved_checkpoint_goes_on_after_the_original_is_destroyed(
    spark: SparkSession, cluster: LocalCluster, peacefs: Peacefs, tmp_path: Path
) -> None:
    source = tmp_path / "in"
    source.mkdir()

    def put(part: int) -> None:
        (source / f"{part}.txt").write_text("a\nb\nc\n")
        os.utime(source / f"{part}.txt", (part + 1, part + 1))

    def last_batch(place: str) -> int:
        verified = peacefs("verify", "--json", place, address)
        verdict = json.loads(verified.stdout)
        assert verified.exit_code == 0, verdict
        return int(verdict["batch"])

    address = f"--coordinator={cluster.http_address}"
    root = f"{cluster.webhdfs_uri}/tws/a"
    put(0)
    assert count_by_key(spark, source, begin_run(root).location) is None
    put(1)
    assert count_by_key(spark, source, begin_run(root).location) is None, (
        "it reads schemas by the older run's path"
    )
    assert last_batch("/tws/a") == 1
    with PeaceFileSystem(cluster.http_address) as files:
        assert peacefs("fork", "/tws/a", "/tws/fork", address).exit_code == 0
        files.copy("/tws/a", "/tws/plain")
        files.delete("/tws/a", recursive=True)
    put(2)
    assert peacefs("verify", "/tws/plain", address).exit_code == 5, "it names files of the original"
    # Spark's default file system differs here, and Spark opens a schema where its URI says.
    assert rows_of_state(spark, f"{cluster.webhdfs_uri}/tws/fork") == 3
    refused = count_by_key(spark, source, f"{cluster.webhdfs_uri}/tws/fork", "string")
    assert "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE" in (refused or "")
    assert count_by_key(spark, source, f"{cluster.webhdfs_uri}/tws/fork") is None
    assert last_batch("/tws/fork") == 2

    archive = tmp_path / "a.zip"
    assert peacefs("export", "/tws/fork", str(archive), address).exit_code == 0
    with PeaceFileSystem(cluster.http_address) as files:
        files.delete("/tws", recursive=True)
    assert peacefs("import", str(archive), f"file://{tmp_path}/imported").exit_code == 0
    put(3)
    assert rows_of_state(spark, f"file://{tmp_path}/imported") == 3
    assert count_by_key(spark, source, f"file://{tmp_path}/imported") is None
    assert last_batch(f"file://{tmp_path}/imported") == 3
    shutil.rmtree(tmp_path / "imported")
