"""Options for tracing: `--traces` and `--trace-share`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TraceOptions:
    """`to` is the URL of a collector (OTLP over HTTP) or a file; `share` is the traced share of requests, 0 to
    1.
    """

    to: str
    share: float = 1.0
