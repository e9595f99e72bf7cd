"""`verify --with-sink` judges the log of a file sink. Expected results were observed with Spark 4.3.0."""

from __future__ import annotations

import json

import pytest
from support import checkpoints as made
from support.checkpoints import ROOT, MemoryTree

from peacefs.protocol.errors import BadRequest
from peacefs.spark_connector.checkpoints.catalogue import read_layout
from peacefs.spark_connector.checkpoints.findings import Verdict
from peacefs.spark_connector.checkpoints.inspection import Inspection
from peacefs.spark_connector.checkpoints.layout import LogFiles
from peacefs.spark_connector.checkpoints.rollback import beyond_in_sink
from peacefs.spark_connector.checkpoints.sink_logs import SinkLog
from peacefs.spark_connector.checkpoints.verification import verify

SINK = "/out"


def sink_log(tree: MemoryTree, batches: range) -> None:
    for batch in batches:
        entry = json.dumps({"path": f"file:///out/{batch}.json", "size": 1, "action": "add"})
        tree.files[f"{SINK}/_spark_metadata/{batch}"] = f"v1\n{entry}".encode()


def judge(tree: MemoryTree, batch: int | None = None) -> Verdict:
    return verify(Inspection(tree, read_layout(tree, ROOT)), batch, SinkLog(tree, SINK))


def said(verdict: Verdict) -> list[tuple[str, bool, bool]]:
    return [(found.path.rpartition("/")[2], found.stops, found.noticed) for found in verdict.findings]


def test_log_that_ends_with_the_checkpoint_is_good() -> None:
    tree = made.checkpoint()
    sink_log(tree, range(8))
    verdict = judge(tree)
    assert (verdict.findings, verdict.restarts, verdict.last_good) == ([], True, 7)


def test_batches_that_the_sink_has_are_skipped_and_their_rows_lost() -> None:
    tree = made.checkpoint()
    sink_log(tree, range(9))
    assert said(judge(tree)) == [("8", True, False)], "Spark plans batch 8 anew, and the sink skips it"


@pytest.mark.parametrize("state_format", [1, 2])
def test_batch_that_was_killed_after_the_commit_of_the_sink(state_format: int) -> None:
    """Spark skips the batch; with unique ids it then fails: "CheckpointInfo length: 0"."""
    tree = made.checkpoint(state_format=state_format)
    sink_log(tree, range(8))
    del tree.files[f"{ROOT}/commits/7"]
    assert judge(tree).restarts is (state_format == 1)


def test_batches_that_the_sink_lacks_are_never_read() -> None:
    tree = made.checkpoint()
    sink_log(tree, range(6))
    verdict = judge(tree)
    assert said(verdict) == [("6", True, False), ("7", True, False)]
    assert not verdict.restarts


@pytest.mark.parametrize(("batches", "stops"), [(8, False), (9, True)])
def test_missing_entry_fails_readers_at_once_and_spark_when_it_compacts(batches: int, stops: bool) -> None:
    """Batch 9 compacts the log, since Spark compacts every tenth batch."""
    tree = made.checkpoint(batches=batches)
    sink_log(tree, range(batches))
    del tree.files[f"{SINK}/_spark_metadata/4"]
    verdict = judge(tree)
    assert said(verdict) == [("4", stops, True)]
    assert "Spark does at batch 9" in verdict.findings[0].reason
    assert verdict.last_good == 3, "a rollback keeps the rest of the log"


def test_repartition_leaves_no_entry_and_a_rollback_to_it_would_not_either() -> None:
    """Spark 4.3 fails at the next compaction: BATCH_METADATA_NOT_FOUND."""
    tree = made.checkpoint()
    sink_log(tree, range(7))
    plan = tree.files[f"{ROOT}/offsets/6"]
    one = plan.replace(b'"spark.sql.shuffle.partitions": "2"', b'"spark.sql.shuffle.partitions": "1"')
    assert one != plan
    tree.files[f"{ROOT}/offsets/7"] = one
    verdict = judge(tree)
    assert said(verdict) == [("7", False, True)]
    assert (verdict.restarts, verdict.last_good) == (True, 6)
    with pytest.raises(BadRequest, match="go back to the batch before"):
        beyond_in_sink(
            LogFiles({number: tree.entries(f"{SINK}/_spark_metadata")[number] for number in range(7)}), 7
        )


def test_damaged_entry_is_named() -> None:
    tree = made.checkpoint()
    sink_log(tree, range(8))
    tree.files[f"{SINK}/_spark_metadata/4"] = b"v1\n{"
    assert said(judge(tree)) == [("4", True, True)]


def test_directory_without_a_log_is_no_file_sink() -> None:
    with pytest.raises(BadRequest, match="is /out a file sink's"):
        SinkLog(made.checkpoint(), SINK)
