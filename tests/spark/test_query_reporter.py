"""A driver's reports reach the coordinator; if they do not, the query neither waits nor fails."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from support.waiting import wait_until
from typer.testing import CliRunner

from peacefs.client.control.addresses import CoordinatorAddress
from peacefs.client.control.query_runs import CheckpointRuns
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.command import application
from peacefs.protocol.errors import AccessDenied, PeerUnreachable
from peacefs.protocol.values.query_reports import QueryReport, QueryState
from peacefs.spark_connector.query_reporter import QueryReporter, report_queue_max, report_stop_s
from peacefs.spark_connector.runs import begin_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCATION = "webhdfs://c:9870/ck/orders/.run-3-1f"
QUERY: Any = SimpleNamespace(id="id-1", name="orders")


def progress(batch: int, query: str = "id-1") -> Any:
    said = {
        "id": query,
        "batchId": batch,
        "numInputRows": 120,
        "processedRowsPerSecond": 60.0,
        "durationMs": {"triggerExecution": 2000, "walCommit": 30, "commitOffsets": 20},
        "stateOperators": [{"commitTimeMs": 80, "numStateStoreInstances": 2}],
    }
    return SimpleNamespace(progress=SimpleNamespace(id=query, json=json.dumps(said)))


class Coordinator:
    """Receives reports, unless it is down or hangs."""

    def __init__(self) -> None:
        self.heard: list[QueryReport] = []
        self.fault: Exception | None = None
        self.answers = threading.Event()
        self.answers.set()

    def send(self, _address: CoordinatorAddress, report: QueryReport) -> None:
        self.answers.wait(30)
        if self.fault is not None:
            raise self.fault
        self.heard.append(report)

    def batches(self) -> list[int]:
        return [report.last_batch.batch for report in self.heard if report.last_batch is not None]


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


@pytest.fixture
def reporter(coordinator: Coordinator) -> Iterator[QueryReporter]:
    made = QueryReporter(send=coordinator.send)
    yield made
    coordinator.answers.set()
    made.stop()


def test_reports_are_sent_in_order_and_the_end_last(reporter: QueryReporter, coordinator: Coordinator) -> None:
    reporter.follow(QUERY, LOCATION)
    for batch in range(3):
        reporter.onQueryProgress(progress(batch))
    reporter.onQueryProgress(progress(9, "a query that nobody follows"))
    reporter.onQueryTerminated(SimpleNamespace(id="id-1", exception="it broke\n\tat a frame"))
    reporter.stop()
    assert coordinator.batches() == [0, 1, 2, 2]
    last = coordinator.heard[-1]
    assert (last.state, last.error, last.location, last.name) == (
        QueryState.FAILED,
        "it broke",
        "/ck/orders/.run-3-1f",
        "orders",
    )
    assert last.last_batch is not None
    assert (last.last_batch.rows, last.last_batch.checkpoint_ms) == (120, 30 + 20 + 40)


def test_a_coordinator_that_hangs_holds_nothing_up_and_the_oldest_goes(
    reporter: QueryReporter, coordinator: Coordinator
) -> None:
    coordinator.answers.clear()
    reporter.follow(QUERY, LOCATION)
    before = time.monotonic()
    for batch in range(report_queue_max + 10):
        reporter.onQueryProgress(progress(batch))
    assert time.monotonic() - before < 60, "nobody waits for an answer"
    assert reporter.dropped in (10, 11), "the first may be in hand already"
    coordinator.answers.set()
    wait_until(lambda: coordinator.batches()[-1:] == [report_queue_max + 9], "the last batch")
    assert coordinator.heard[-1].dropped == reporter.dropped


def test_a_coordinator_that_was_away_hears_it_when_it_is_back(
    reporter: QueryReporter, coordinator: Coordinator
) -> None:
    coordinator.fault = PeerUnreachable("nobody")
    reporter.follow(QUERY, LOCATION)
    reporter.onQueryProgress(progress(7))
    coordinator.fault = None
    wait_until(lambda: 7 in coordinator.batches(), "the batch")


def test_a_reporter_stops_in_time_although_nobody_answers(
    reporter: QueryReporter, coordinator: Coordinator
) -> None:
    coordinator.fault = PeerUnreachable("nobody")
    reporter.follow(QUERY, LOCATION)
    reporter.onQueryProgress(progress(7))
    before = time.monotonic()
    reporter.stop()
    assert time.monotonic() - before < report_stop_s + 60
    assert not reporter._thread.is_alive()


def test_reporter_that_is_refused_says_no_more(reporter: QueryReporter, coordinator: Coordinator) -> None:
    coordinator.fault = AccessDenied("no")
    reporter.follow(QUERY, LOCATION)
    wait_until(lambda: not reporter._followed, "the refusal")
    coordinator.fault = None
    reporter.onQueryProgress(progress(7))
    reporter.stop()
    assert coordinator.heard == []


@pytest.mark.spark
@pytest.mark.cluster
def test_a_real_query_is_shown_as_its_driver_reports_it(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.txt").write_text("a\nb\na\n")
    with LocalCluster(tmp_path / "cluster", datanodes=1, port=0) as cluster:
        root = "/reported/words"
        run = begin_run(cluster.webhdfs_uri + root)
        reporter = QueryReporter()
        spark.streams.addListener(reporter)
        try:
            lines = spark.readStream.text(f"file://{tmp_path}/in")
            writer = lines.groupBy("value").count().writeStream.format("noop").outputMode("update")
            query = writer.queryName("words").option("checkpointLocation", run.location).start()
            reporter.follow(query, run.location)
            query.processAllAvailable()
            with CheckpointRuns(cluster.address) as runs:
                wait_until(lambda: any(said.last_batch for said in runs.reports(root)), "a report of a batch")
                address = f"--coordinator={cluster.http_address}"
                rollback = ["checkpoint", "rollback", root, "--to-batch=0", "--no-file-sink", address]
                refused = CliRunner().invoke(application, rollback)
                assert (refused.exit_code, "not over" in refused.stderr) == (1, True), refused.output
                query.stop()
                wait_until(lambda: runs.reports(root)[0].state is QueryState.ENDED, "the end")
                wait_until(lambda: runs.latest(root)[0].ended_ms is not None, "the end of the run")
        finally:
            spark.streams.removeListener(reporter)
            reporter.stop()
        shown = CliRunner().invoke(application, ["checkpoint", "show", root, address]).stdout
    assert f"process {os.getpid()} on" in shown and " of words: ended" in shown
    assert "batch 0: 3 rows" in shown and "writing the checkpoint (offsets" in shown
