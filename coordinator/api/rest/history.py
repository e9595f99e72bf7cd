"""`GET /v1/history`: the last day of the cluster, for the web page. One task records it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import msgspec
from fastapi import FastAPI, Response

from peacefs.coordinator.api.views.history import HistoryRecorder, Totals, history_interval_s
from peacefs.coordinator.cluster.core import Cluster
from peacefs.coordinator.cluster.membership import State
from peacefs.coordinator.metadata.group_commit import GroupCommit
from peacefs.coordinator.operations.viewer import Viewer
from peacefs.coordinator.scheduling.statistics import FastLane


def add_history_route(
    app: FastAPI, cluster: Cluster, lane: FastLane, commits: GroupCommit, viewing: Any
) -> Coroutine[Any, Any, None]:
    """Add the route, and return the recording task. It never ends by itself."""
    recorder = HistoryRecorder()

    @app.get("/v1/history", responses={200: {"description": "A History: one sample a minute, for a day."}})
    async def history(viewer: Viewer = viewing) -> Response:
        """Return throughput, latency and space of the last day, since the start of this coordinator."""
        return Response(msgspec.json.encode(recorder.view()), media_type="application/json")

    def totals() -> Totals:
        usages = [node.usage for node in cluster.members.all() if node.state is not State.DEAD]
        used, capacity = sum(each.used_bytes for each in usages), sum(each.capacity_bytes for each in usages)
        return Totals(
            lane.published_bytes_total, commits.requests, commits.commits, commits.written_s_total, used, capacity
        )

    async def keep() -> None:
        while True:
            recorder.record(time.monotonic(), time.time_ns() // 1_000_000, totals())
            await asyncio.sleep(history_interval_s)

    return keep()
