"""A rollback happens at once, and the continued query reaches the same result."""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import Result
from support import checkpoints as made
from support.checkpoints import MemoryTree

from peacefs.client.control.addresses import split_uri
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import BadRequest, RunSuperseded
from peacefs.spark_connector.checkpoints import left_over, rollback
from peacefs.spark_connector.checkpoints.catalogue import read_layout
from peacefs.spark_connector.checkpoints.cut import Cut, plan_cut
from peacefs.spark_connector.checkpoints.inspection import Inspection
from peacefs.spark_connector.checkpoints.layout import LogFiles
from peacefs.spark_connector.checkpoints.rollback import beyond_in_sink
from peacefs.spark_connector.checkpoints.tree import PeaceTree, TreeEntry
from peacefs.spark_connector.runs import begin_run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Peacefs = Callable[..., Result]


def log(*names: str) -> LogFiles:
    entries = LogFiles()
    for name in names:
        number, dot, _ = name.partition(".")
        (entries.compacts if dot else entries.deltas)[int(number)] = TreeEntry(f"/s/{name}", False, 1, 1)
    return entries


def planned(tree: MemoryTree, batch: int) -> Cut:
    return plan_cut(Inspection(tree, read_layout(tree, made.ROOT)), batch)


@pytest.mark.parametrize("state_format", [1, 2])
def test_rollback_takes_away_what_later_batches_wrote_but_for_the_plan_of_the_next(state_format: int) -> None:
    tree: MemoryTree = made.checkpoint(state_format=state_format)
    cut = planned(tree, 5)
    assert {path for path in cut.remove if "state" not in path} == {
        "commits/6",
        "commits/7",
        "offsets/7",
        "sources/0/7",
    }
    state = Counter(path.rpartition(".")[2] for path in cut.remove if "state" in path)
    assert state == {"changelog": 4} | ({"crc": 4} if state_format == 2 else {}), (
        "versions 7 and 8 of two partitions"
    )
    assert (cut.plan, cut.anew) == (6, [7]) and cut.reasons
    assert planned(tree, 7).remove == []


@pytest.mark.evidence("checkpoint-damaged")
def test_rollback_by_one_batch_repeats_it_as_it_was_and_needs_no_leave() -> None:
    cut = planned(made.checkpoint(), 6)
    assert (cut.plan, cut.anew, cut.reasons) == (7, [], [])
    assert "offsets/7" not in cut.remove and "sources/0/7" not in cut.remove


def test_rollback_drops_a_plan_that_cannot_be_read_and_says_that_the_batch_may_differ() -> None:
    tree = made.checkpoint()
    tree.files[f"{made.ROOT}/sources/0/6"] = b""
    cut = planned(tree, 5)
    assert (cut.plan, cut.anew) == (None, [6, 7])
    assert {"offsets/6", "offsets/7", "sources/0/6", "sources/0/7"} <= set(cut.remove)
    assert any("offsets/6" in reason for reason in cut.reasons)


def test_rollback_leaves_a_sources_log_whole_that_cannot_be_cut_back_and_says_so() -> None:
    tree = made.checkpoint()
    for name in ("0", "1", "2.compact"):
        del tree.files[f"{made.ROOT}/sources/0/{name}"]
    cut = planned(tree, 3)
    assert not [path for path in cut.remove if path.startswith("sources")]
    assert any("next batch holds all files" in reason for reason in cut.reasons)


def test_a_sinks_log_is_cut_back_as_long_as_what_remains_can_stand_alone() -> None:
    whole = log("0", "1", "2.compact", "3", "4", "5.compact", "6")
    assert [entry.name for entry in beyond_in_sink(whole, 3)] == ["4", "6", "5.compact"]
    assert [entry.name for entry in beyond_in_sink(whole, 1)] == ["3", "4", "6", "2.compact", "5.compact"]
    for compacted, batch in ((log("5.compact", "6"), 3), (log("2.compact", "4", "5.compact"), 4)):
        with pytest.raises(BadRequest, match="does not reach back"):
            beyond_in_sink(compacted, batch)


@pytest.mark.cluster
def test_a_rollback_keeps_what_was_there_and_refuses_what_it_cannot_do(
    cluster: LocalCluster, peacefs: Peacefs
) -> None:
    root = "/rolled/orders"
    address = f"--coordinator={cluster.http_address}"

    def refused(*arguments: str) -> str:
        result = peacefs("rollback", root, address, *arguments)
        assert result.exit_code == 1
        return result.stderr

    with PeaceFileSystem(cluster.http_address) as files:
        for path, data in made.checkpoint(root=root).files.items():
            files.write(path, data)
        assert "--with-sink" in refused("--to-batch=5", "--idle=0")
        assert "--with-sink" in refused("--to-batch=5", "--idle=0", "--with-sink=/out", "--no-file-sink")
        assert "alive" in refused("--to-batch=5", "--no-file-sink")
        idle = ("--no-file-sink", "--idle=0")
        assert "batches 0 to 7 are" in refused("--to-batch=8", *idle)
        assert "the latest already" in refused("--to-batch=7", *idle)
        assert "is not there" in refused("--to-batch=5", "--with-sink=/rolled", "--idle=0")
        stranger = PeaceFileSystem(cluster.http_address, user="stranger")
        files.set_permission("/rolled", 0o755)
        assert [entry.name for entry in files.list("/rolled")] == ["orders"], "a refusal leaves nothing behind"
        with stranger, pytest.raises(Exception, match="Permission denied"):
            stranger.exchange((root, root + "x"))

        zombie = begin_run(f"{cluster.webhdfs_uri}{root}", host="elsewhere", pid=7)
        assert "process 7 on elsewhere) is not over" in refused("--to-batch=5", "--no-file-sink")
        late = split_uri(zombie.location)[1] + "/offsets/8"
        files.write(late, b"v1")
        zombie.end()
        assert "the latest already" not in refused("--to-batch=8", "--no-file-sink"), (
            "a run that is over is no hindrance"
        )
        files.delete(late)
        before = files.content_summary(root).files
        differ = refused("--to-batch=5", *idle)
        assert "batch 7 may come again with other rows" in differ and "Delta Lake's txnVersion" in differ
        done = peacefs("rollback", root, "--to-batch=5", "--batches-may-differ", "--json", address, *idle)
        assert done.exit_code == 0, done.stderr
        record = json.loads(done.stdout)
        assert (record["before"], record["batch"], record["removed"]) == (7, 5, 8)
        assert (record["repeats"], record["may_differ"]) == (6, [7])
        assert files.content_summary(root).files == before - 8
        assert files.content_summary(record["kept"][0]).files == before
        verified = json.loads(peacefs("verify", root, "--json", address).stdout)
        assert (verified["batch"], verified["restarts"], verified["findings"]) == (5, True, [])

        with pytest.raises(RunSuperseded, match="put in its place by a rename or a rollback"):
            files.write(late, b"v1")

        files.delete(f"{root}/state/0/1/4.changelog")
        files.delete(f"{root}/state/0/1/5.changelog")
        assert "could not go on from batch 4" in refused("--to-batch=4", *idle)
    assert "there is no directory /x" in peacefs("rollback", "file:///x", "--to-batch=1", "--no-file-sink").stderr


@pytest.mark.cluster
@pytest.mark.evidence("rollback-past-sink")
def test_former_state_survives_a_rollback_that_is_killed_after_its_commit(
    cluster: LocalCluster, peacefs: Peacefs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_arguments: object) -> str:
        raise KeyboardInterrupt

    root, address = "/killed/orders", f"--coordinator={cluster.http_address}"
    with PeaceFileSystem(cluster.http_address) as files:
        for path, data in made.checkpoint(root=root).files.items():
            files.write(path, data)
        before = files.content_summary(root)
        with monkeypatch.context() as patched:
            patched.setattr(rollback, "_keep", killed)
            peacefs(
                "rollback", root, "--to-batch=5", "--no-file-sink", "--batches-may-differ", "--idle=0", address
            )
        assert files.content_summary(root).files < before.files
        monkeypatch.setattr(left_over, "checkpoint_left_over_age_s", -60.0)
        assert peacefs("fork", root, "/killed/fork", address).exit_code == 0
        with left_over.staged(PeaceTree(files), root):
            (kept,) = [entry for entry in files.list("/killed") if "rollback-to-5" in entry.name]
        assert files.content_summary(kept.path) == before


@pytest.mark.spark
@pytest.mark.cluster
def test_a_query_with_a_file_sink_that_was_rolled_back_gives_the_same_result(
    spark: SparkSession, cluster: LocalCluster, peacefs: Peacefs, tmp_path: Path
) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for part in range(4):
        (source / f"{part}.txt").write_text("".join(f"{row + part * 5}\n" for row in range(10)))
        os.utime(source / f"{part}.txt", (part + 1, part + 1))
    out, root = f"{cluster.webhdfs_uri}/sink/out", f"{cluster.webhdfs_uri}/sink/checkpoint"

    def run() -> list[int]:
        lines = spark.readStream.option("maxFilesPerTrigger", 1).text(f"file://{source}")
        writer = lines.dropDuplicates(["value"]).writeStream.format("text").option("path", out)
        query = writer.option("checkpointLocation", root).trigger(availableNow=True).start()
        query.awaitTermination()
        return sorted(int(row.value) for row in spark.read.text(out).collect())

    everything = list(range(25))
    assert run() == everything
    done = peacefs("rollback", root, "--to-batch=1", f"--with-sink={out}", "--idle=0")
    assert done.exit_code == 0, done.stderr
    assert sorted(int(row.value) for row in spark.read.text(out).collect()) == everything[:15]
    assert run() == everything, "each once: the state knows what was seen until then, and no more"
    assert peacefs("verify", root).exit_code == 0


@pytest.mark.spark
@pytest.mark.cluster
@pytest.mark.timeout(400)
@pytest.mark.evidence("checkpoint-damaged")
def test_rollback_loses_no_row_of_a_sink_that_skips_the_batch_numbers_that_it_has_seen(
    spark: SparkSession, cluster: LocalCluster, peacefs: Peacefs, tmp_path: Path
) -> None:
    """The idiom of Spark's guide, and of Delta Lake's `txnVersion`: the sink identifies batches by number."""
    source = tmp_path / "in"
    source.mkdir()
    for part in range(9):
        (source / f"{part}.txt").write_text("".join(f"{part} {row}\n" for row in range(300)))
        os.utime(source / f"{part}.txt", (part + 1, part + 1))
    root = f"{cluster.webhdfs_uri}/numbered/checkpoint"
    table: dict[int, list[str]] = {}
    given: list[tuple[int, int]] = []

    def run(stops_at: int | None = None) -> None:
        from pyspark.errors import PySparkException

        def put_out(rows: DataFrame, batch: int) -> None:
            if batch == stops_at:
                raise RuntimeError("the sink is told to stop")
            new = [row.value for row in rows.collect()]
            given.append((batch, len(new)))
            table.setdefault(batch, new)

        lines = spark.readStream.option("maxFilesPerTrigger", 1).text(f"file://{source}")
        writer = lines.writeStream.foreachBatch(put_out).option("checkpointLocation", root)
        query = writer.trigger(availableNow=True).start()
        with contextlib.suppress(PySparkException):
            query.awaitTermination()

    run(stops_at=6)
    refused = peacefs("rollback", root, "--to-batch=2", "--no-file-sink", "--idle=0")
    assert refused.exit_code == 1 and "batches 4 to 6 may come again with other rows" in refused.stderr
    done = peacefs("rollback", root, "--to-batch=2", "--no-file-sink", "--batches-may-differ", "--idle=0")
    assert done.exit_code == 0, done.stderr
    assert "batch 3 is repeated as it was planned" in done.stdout
    given.clear()
    run()
    assert given == [(batch, 300) for batch in range(3, 9)], "the contents that they had, under the same numbers"
    assert sum(len(rows) for rows in table.values()) == 2700
    assert len({row for rows in table.values() for row in rows}) == 2700
