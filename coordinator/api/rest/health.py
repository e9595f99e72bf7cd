"""`GET /health/live` and `/health/ready`, for probes of the process: 200 or 503, with reasons in words.

They need no authentication, and contain no names or paths. A blocked event loop cannot answer these requests
either, so a probe needs a timeout.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from fastapi import FastAPI, Response

from peacefs.coordinator.health import Condition, Health, live, ready

HEALTH_PATHS = ("/health/live", "/health/ready")
_HEADERS = {"cache-control": "no-store"}


def add_health_routes(app: FastAPI, condition: Callable[[], Condition]) -> None:
    """Add both routes; `condition` returns the current facts."""

    @app.api_route("/health/live", methods=["GET", "HEAD"], include_in_schema=False)
    async def is_live() -> Response:
        return _answer(live(condition()))

    @app.api_route("/health/ready", methods=["GET", "HEAD"], include_in_schema=False)
    async def is_ready() -> Response:
        return _answer(ready(condition()))


def _answer(health: Health) -> Response:
    return Response(
        msgspec.json.encode(health), 200 if health.ok else 503, media_type="application/json", headers=_HEADERS
    )
