"""The place for traces, and the share of requests that is traced, as `--traces` and `--trace-share` say."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TraceOptions:
    """`to` is the address of a collector for OTLP over HTTP, or a file; `share` the part of requests, 0 to 1."""

    to: str
    share: float = 1.0
