"""Spark's failures are reduced to one line, from Py4J's text."""

from __future__ import annotations

import pytest

from peacefs.spark_connector.spark_failures import in_one_line

_TRUNCATED = """An error occurred while calling o60.count.
: org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] It cannot be loaded.  SQLSTATE: 58030
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.cannotLoadStore(QueryExecutionErrors.scala:2941)
\tSuppressed: org.apache.spark.util.TaskCompletionListenerException: An error occurred

Previous exception in task: [CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state.
\torg.apache.spark.sql.errors.QueryExecutionErrors$.cannotLoadStore(QueryExecutionErrors.scala:2941)
\t\tCaused by: java.io.EOFException: suppressed
Caused by: org.apache.spark.SparkException: in between
\tat java.base/java.lang.Thread.run(Thread.java:840)
Caused by: java.io.EOFException: Stream ended prematurely
\t... 30 more
"""
_NO_CAUSE = """An error occurred while calling o59.load.
: java.nio.charset.MalformedInputException: Input length = 1
\tat java.base/java.nio.charset.CoderResult.throwException(CoderResult.java:274)
"""


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            _TRUNCATED,
            "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] It cannot be loaded. "
            "(java.io.EOFException: Stream ended prematurely)",
        ),
        (_NO_CAUSE, "java.nio.charset.MalformedInputException: Input length = 1"),
        (
            "[STDS_OFFSET_LOG_UNAVAILABLE] There is no log. SQLSTATE: KD002",
            "[STDS_OFFSET_LOG_UNAVAILABLE] There is no log.",
        ),
        ("", "it does not say why"),
        ("x" * 1000, "x" * 300 + "…"),
    ],
)
def test_the_message_and_the_innermost_cause_are_told_and_no_stack(said: str, told: str) -> None:
    assert in_one_line(said) == told
