"""The Prometheus histogram of request durations, by operation."""

from __future__ import annotations

import re

from peacefs.coordinator.calls.webhdfs_requests import OPERATIONS
from peacefs.protocol.asgi import Scope
from peacefs.runtime.counters import QuickHistogram

_OPERATION = re.compile(rb"(?:^|&)op=([^&]*)", re.IGNORECASE)
_WEBHDFS = frozenset(name for of_method in OPERATIONS.values() for name in of_method)
_ROUTES = frozenset(
    (
        "balancer",
        "checkpoints",
        "chunks",
        "coordinator",
        "copies",
        "credentials",
        "datanodes",
        "exchanges",
        "files",
        "fsck",
        "history",
        "live",
        "metadata",
        "oauth2",
        "plan",
        "queries",
        "schedule",
        "snapshots",
        "status",
        "tokens",
        "topology",
    )
)

request_seconds = QuickHistogram(
    "peacefs_http_request_seconds",
    "Duration of HTTP requests, by WebHDFS's operation or the route of the REST, and by outcome",
    (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0),
    ["operation", "outcome"],
)


def operation_of(scope: Scope) -> str:
    """Return the operation of a request, from a bounded set of names."""
    path: str = scope.get("path", "")
    if path.startswith("/webhdfs/"):
        found = _OPERATION.search(scope.get("query_string", b""))
        name = found[1].decode("latin-1").upper() if found else ""
        return name if name in _WEBHDFS else "other"
    first, _, rest = path.removeprefix("/").partition("/")
    route = rest.partition("/")[0]
    return f"v1/{route}" if first == "v1" and route in _ROUTES else "other"
