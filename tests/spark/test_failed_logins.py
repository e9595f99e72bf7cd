"""The streaming query on local files counts what the parser counts, also after a restart."""

from __future__ import annotations

import time
from collections import Counter
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from peacefs.spark_connector.demo.auth_log import YearAssumption, parse_line
from peacefs.spark_connector.demo.log_generator import generate_log
from peacefs.spark_connector.demo.log_measure import LogMeasure, assume_years, measure
from peacefs.spark_connector.demo.query_plan import STOPPED, FailureCount, QueryPlan
from peacefs.spark_connector.demo.query_process import QueryProcess
from peacefs.spark_connector.demo.staging import read_lines, stage, watermark_delay_s
from peacefs.spark_connector.java import find_java, java_environment
from peacefs.spark_connector.query_progress import read_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

WINDOW_S = 600


def counted(log: Path, measured: LogMeasure) -> list[FailureCount]:
    """Return the same aggregation, computed without Spark."""
    counts: Counter[tuple[int, str]] = Counter()
    for line in read_lines([log]):
        parsed = parse_line(line, measured.years)
        if parsed.at is not None and parsed.source is not None:
            counts[int(parsed.at.timestamp()) // WINDOW_S * WINDOW_S, parsed.source] += parsed.failures
    return sorted(FailureCount(start, source, failures) for (start, source), failures in counts.items())


def run(spark: SparkSession, plan: QueryPlan) -> None:
    from peacefs.spark_connector.demo.failed_logins import ProgressFile, start_query

    query = start_query(spark, plan)
    assert query.awaitTermination(60)
    ProgressFile(Path(plan.progress)).append_news(query)


class Thrown:
    """A Java exception in Py4J's form."""

    def __init__(self, text: str, cause: Thrown | None = None) -> None:
        self.toString = lambda: text
        self.getCause = lambda: cause


def test_the_innermost_cause_is_the_reason_in_one_line() -> None:
    from peacefs.spark_connector.demo.failed_logins import root_cause

    cause = Thrown("java.io.IOException: no datanode is alive\n\tat somewhere")
    assert root_cause(Thrown("a", Thrown("b", cause))) == "java.io.IOException: no datanode is alive"


def test_reason_of_a_failed_task_is_what_failed_in_it() -> None:
    from peacefs.spark_connector.demo.failed_logins import root_cause

    text = (
        "org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 9.0 failed 4 times, "
        "most recent failure: Lost task 1.3 in stage 9.0 (TID 31) (127.0.0.1 executor driver): "
        "java.net.SocketException: Connection reset\n\tat somewhere"
    )
    assert root_cause(Thrown(text)) == "java.net.SocketException: Connection reset"


def test_a_run_that_spark_stops_says_why_in_its_last_line(tmp_path: Path) -> None:
    (tmp_path / "input").mkdir()
    (tmp_path / "file").write_text("in the way")
    plan = QueryPlan(
        coordinator="127.0.0.1:9870",
        input_uri=f"file://{tmp_path}/input",
        output_uri=f"file://{tmp_path}/output",
        checkpoint_uri=f"file://{tmp_path}/file/checkpoint",
        years=YearAssumption(2024),
        window_s=WINDOW_S,
        delay_s=1,
        progress=str(tmp_path / "progress.jsonl"),
        result=str(tmp_path / "result.json"),
    )
    (tmp_path / "plan.json").write_bytes(msgspec.json.encode(plan))
    variables = {**java_environment(find_java(), tmp_path / "java"), "SPARK_LOCAL_IP": "127.0.0.1"}
    module = "peacefs.spark_connector.demo.failed_logins"
    with QueryProcess(module, tmp_path / "plan.json", tmp_path / "query.log", variables) as query:
        deadline = time.monotonic() + 180
        while query.status is None:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert query.status == 1
        [last] = query.last_words(1)
    assert last.startswith(STOPPED)
    assert "file" in last
    assert not (tmp_path / "result.json").exists()


def uncommit_last_batch(checkpoint: Path) -> None:
    """Remove the query's last commit, as if it was killed between the sink's commit and its own."""
    last = max(int(entry.name) for entry in (checkpoint / "commits").iterdir() if entry.name.isdecimal())
    for name in (str(last), f".{last}.crc"):
        (checkpoint / "commits" / name).unlink()


def test_stream_batch_and_parser_count_alike_also_over_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    from peacefs.spark_connector.demo.failed_logins import batch_rows, streamed_rows

    log = tmp_path / "auth.log"
    log.write_text("\n".join(generate_log(2, 600)), encoding="utf-8")
    measured = measure(read_lines([log]), assume_years(read_lines([log]), date(2025, 6, 1)))
    assert measured.disorder_s > 0
    parts = stage(read_lines([log]), measured, tmp_path / "staged", 3, WINDOW_S)
    arrived = tmp_path / "arrived"
    arrived.mkdir()
    plan = QueryPlan(
        coordinator="127.0.0.1:9870",
        input_uri=f"file://{arrived}",
        output_uri=f"file://{tmp_path}/output",
        checkpoint_uri=f"file://{tmp_path}/checkpoint",
        years=measured.years,
        window_s=WINDOW_S,
        delay_s=watermark_delay_s(measured),
        progress=str(tmp_path / "progress.jsonl"),
        result=str(tmp_path / "result.json"),
    )
    assert msgspec.json.decode(msgspec.json.encode(plan), type=QueryPlan) == plan
    for part in parts[:2]:
        part.rename(arrived / part.name)
    run(spark, plan)
    assert streamed_rows(spark, plan) != batch_rows(spark, plan), "open windows are not put out yet"
    uncommit_last_batch(tmp_path / "checkpoint")
    for part in parts[2:]:
        part.rename(arrived / part.name)
    run(spark, plan)

    assert streamed_rows(spark, plan) == batch_rows(spark, plan) == counted(log, measured)
    batches = read_progress(Path(plan.progress))
    assert [batch.batch for batch in batches] == list(range(len(batches)))
    assert len(batches) > len(parts)
    assert all(batch.log_writes_ms > 0 and batch.state_commit_ms >= 0 for batch in batches)
    assert list((tmp_path / "checkpoint" / "state").rglob("*.changelog")), "RocksDB with change logs"
