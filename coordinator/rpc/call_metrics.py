"""Measure how long the coordinator takes over calls in frames, by message, for Prometheus."""

from __future__ import annotations

from functools import cache

from prometheus_client import Histogram

from peacefs.runtime.counters import registry

call_seconds = Histogram(
    "peacefs_call_seconds",
    "Seconds of calls over frames, by message and outcome",
    ["operation", "outcome"],
    buckets=(0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0),
    registry=registry,
)


@cache
def _child(operation: str, outcome: str) -> Histogram:
    """Return the histogram of one operation and outcome. The cache stays small: operations are message classes."""
    return call_seconds.labels(operation, outcome)


def observe_call(operation: str, outcome: str, seconds: float) -> None:
    """Record how long a call took."""
    _child(operation, outcome).observe(seconds)
