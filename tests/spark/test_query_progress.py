"""Parsing Spark's reports of its batches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from peacefs.spark_connector.query_progress import BatchProgress, Spread, read_progress, spread


def report(batch: int, **durations: int) -> dict[str, Any]:
    operators = [{"commitTimeMs": 80, "numStateStoreInstances": 4}]
    return {"batchId": batch, "durationMs": durations, "stateOperators": operators}


def test_a_batch_is_read_with_the_times_of_its_checkpoint_writes(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    path.write_text(json.dumps(report(7, triggerExecution=900, walCommit=30, commitOffsets=12)) + "\n")
    assert read_progress(path) == [BatchProgress(7, 900, 42, 20.0)]


def test_batch_that_ran_twice_counts_its_second_run_and_no_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    runs = [report(0, walCommit=1), report(1, walCommit=2), report(1, walCommit=3)]
    path.write_text("".join(json.dumps(run) + "\n" for run in runs) + '{"batchId": 2, "dur')
    assert [(batch.batch, batch.log_writes_ms) for batch in read_progress(path)] == [(0, 1), (1, 3)]


def test_a_query_without_state_and_one_that_has_not_begun_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    assert read_progress(path) == []
    path.write_text(json.dumps({"batchId": 0, "durationMs": {}, "stateOperators": []}) + "\n")
    assert read_progress(path) == [BatchProgress(0, 0, 0, 0.0)]


def test_median_and_95th_percentile() -> None:
    assert spread([]) is None
    assert spread([5]) == Spread(5, 5)
    assert spread(list(range(100, 0, -1))) == Spread(50.5, 95)
    assert spread([1, 2, 1000]) == Spread(2, 1000)
