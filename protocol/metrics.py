"""What both services count, in Prometheus's form, and the text that `/metrics` answers."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

#: One registry a process: a process is one service.
registry = CollectorRegistry()

http_requests = Counter("peacefs_http_requests", "HTTP requests whose head has arrived", registry=registry)
frames_sent = Counter("peacefs_frames_sent", "Frames sent to other services and to clients", registry=registry)

CONTENT_TYPE = CONTENT_TYPE_LATEST


def exposition() -> bytes:
    """The current values, to be served under `/metrics`."""
    return generate_latest(registry)
