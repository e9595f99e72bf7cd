"""`/health/live` and `/health/ready`: their conditions, and their answers."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from peacefs.coordinator.api.rest.health import add_health_routes
from peacefs.coordinator.health import Condition, live, ready, tick_silence_s_max

_WELL: dict[str, Any] = {"tick_age_s": 0.2}


def test_health_of_a_leader_that_serves_is_good() -> None:
    condition = Condition(**_WELL)
    assert live(condition).ok and ready(condition).ok
    assert ready(condition).role == "leader"


@pytest.mark.parametrize(
    ("changes", "is_live", "problem"),
    [
        ({"leads": False}, True, "standby: another coordinator leads"),
        ({"leads": False, "somebody_leads": False}, True, "standby: nobody leads now"),
        ({"has_loaded": False, "is_ready": False}, True, "starting: the chunks"),
        ({"is_ready": False}, True, "starting: datanodes"),
        ({"has_room": False}, True, "disk full"),
        ({"commits_missing": True}, True, "commits are missing"),
        ({"tick_age_s": tick_silence_s_max + 1}, False, "stuck: the background work was last done 31 s ago"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_health_says_why_clients_are_to_go_elsewhere(changes: dict[str, Any], is_live: bool, problem: str) -> None:
    condition = Condition(**_WELL | changes)
    assert live(condition).ok is is_live
    judged = ready(condition)
    assert not judged.ok
    (said,) = judged.problems
    assert problem in said
    assert judged.role == ("leader" if changes.get("leads", True) else "standby")


def test_health_is_answered_with_a_status_that_a_probe_understands() -> None:
    conditions = {"now": Condition(**_WELL)}
    app = FastAPI()
    add_health_routes(app, lambda: conditions["now"])

    async def ask(path: str) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client:
            return await client.get(path)

    for path in ("/health/live", "/health/ready"):
        answer = asyncio.run(ask(path))
        assert (answer.status_code, answer.json()) == (200, {"ok": True, "role": "leader", "problems": []})
    conditions["now"] = Condition(tick_age_s=100.0, has_room=False)
    assert asyncio.run(ask("/health/live")).status_code == 503
    answer = asyncio.run(ask("/health/ready"))
    assert answer.status_code == 503
    assert [each.partition(":")[0] for each in answer.json()["problems"]] == ["stuck", "disk full"]
    assert answer.headers["cache-control"] == "no-store"
