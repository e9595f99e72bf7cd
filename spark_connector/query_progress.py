"""Read Spark's report of each batch, and how much of the batch's time went into the checkpoint.

Spark's `durationMs` reports `walCommit` (writing `offsets/N`) and `commitOffsets` (writing `commits/N`) as wall
time of the batch. State stores commit inside the batch, each partition separately. Spark sums their times, so this
module divides the sum by the number of stores.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from peacefs.protocol.values.query_reports import BatchReport


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """One batch, durations in ms; `state_commit_ms` is the mean over the batch's state stores."""

    batch: int
    duration_ms: int
    log_writes_ms: int
    state_commit_ms: float


class Spread(msgspec.Struct, frozen=True):
    """Median and 95th percentile (nearest rank)."""

    median: float
    p95: float


def spread(values: Sequence[float]) -> Spread | None:
    """Return the spread of the values; None if there are none."""
    if not values:
        return None
    ordered = sorted(values)
    return Spread(statistics.median(ordered), ordered[math.ceil(0.95 * len(ordered)) - 1])


def read_progress(path: Path) -> list[BatchProgress]:
    """Return a progress file's batches in order. Skip a torn last line; keep a batch's last run."""
    if not path.exists():
        return []
    whole_lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    batches = (_batch(json.loads(line)) for line in whole_lines)
    return list({batch.batch: batch for batch in batches}.values())


def _batch(progress: dict[str, Any]) -> BatchProgress:
    durations = progress["durationMs"]
    return BatchProgress(
        batch=progress["batchId"],
        duration_ms=durations.get("triggerExecution", 0),
        log_writes_ms=durations.get("walCommit", 0) + durations.get("commitOffsets", 0),
        state_commit_ms=_state_commit_ms(progress["stateOperators"]),
    )


def batch_report(progress: dict[str, Any]) -> BatchReport:
    """Convert Spark's progress of a batch to a report for the coordinator."""
    durations = progress.get("durationMs", {})
    return BatchReport(
        batch=progress["batchId"],
        rows=progress.get("numInputRows", 0),
        rows_per_second=progress.get("processedRowsPerSecond", 0.0),
        durations_ms={name: int(spent) for name, spent in durations.items()},
        offsets_ms=durations.get("walCommit", 0),
        commits_ms=durations.get("commitOffsets", 0),
        state_ms=_state_commit_ms(progress.get("stateOperators", [])),
    )


def _state_commit_ms(operators: Iterable[dict[str, Any]]) -> float:
    commits = [(operator["commitTimeMs"], operator["numStateStoreInstances"]) for operator in operators]
    stores = sum(count for _, count in commits)
    return sum(spent for spent, _ in commits) / stores if stores else 0.0
