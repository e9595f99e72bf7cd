"""Measure how long framed calls take, by message, for Prometheus."""

from __future__ import annotations

from peacefs.runtime.counters import QuickHistogram

call_seconds = QuickHistogram(
    "peacefs_call_seconds",
    "Seconds of calls over frames, by message and outcome",
    (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0),
    ["operation", "outcome"],
)
