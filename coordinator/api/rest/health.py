"""`GET /health/live` and `/health/ready`, for whatever watches the process: 200 or 503, with reasons in words.

They are open to whoever reaches the port, and bear no name and no path. A loop that is held answers nobody, here
as elsewhere: a probe needs a timeout.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from fastapi import FastAPI, Response

from peacefs.coordinator.health import Condition, Health, live, ready

HEALTH_PATHS = ("/health/live", "/health/ready")
_HEADERS = {"cache-control": "no-store"}


def add_health_routes(app: FastAPI, condition: Callable[[], Condition]) -> None:
    """Add both; `condition` tells the facts of this moment."""

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
