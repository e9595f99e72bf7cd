"""Requests above the coordinator's limit get an answer after which clients retry."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from peacefs.coordinator.api.admission import Admission
from peacefs.protocol.asgi import Message, Receive, Scope, Send
from peacefs.protocol.errors import from_remote_exception


async def _receive() -> Message:
    return {"type": "http.disconnect"}


class Client:
    """Records what it was sent."""

    def __init__(self) -> None:
        self.status = 0
        self.body = b""

    async def send(self, message: Message) -> None:
        self.status = message.get("status", self.status)
        self.body += message.get("body", b"")


def scope(path: str, client: str = "10.0.0.1") -> dict[str, Any]:
    return {
        "client": (client, 40_000),
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [],
    }


@pytest.mark.evidence("everything-is-bounded")
def test_the_one_too_many_is_told_to_come_again_and_is_let_in_then() -> None:
    async def story() -> None:
        go_on = asyncio.Event()
        answered: list[str] = []

        async def app(asked: Scope, receive: Receive, send: Send) -> None:
            if asked["path"] != "/metrics":
                await go_on.wait()
            answered.append(asked["path"])

        admission = Admission(app, in_flight_max=2)
        client = Client()
        waiting = [asyncio.create_task(admission(scope(f"/{n}"), _receive, client.send)) for n in range(2)]
        await asyncio.sleep(0)
        await admission(scope("/webhdfs/v1/too-many"), _receive, client.send)
        refusal = from_remote_exception(json.loads(client.body))
        assert client.status == 403 and refusal.retriable
        assert json.loads(client.body)["RemoteException"]["exception"] == "RetriableException"
        await admission(scope("/metrics"), _receive, client.send)
        assert answered == ["/metrics"]
        go_on.set()
        await asyncio.gather(*waiting)
        await admission(scope("/again"), _receive, client.send)
        assert sorted(answered) == ["/0", "/1", "/again", "/metrics"]
        assert (admission.in_flight, admission.refused) == (0, 1)

    asyncio.run(story())


def test_client_with_its_share_under_way_is_refused_and_others_are_let_in() -> None:
    async def story() -> None:
        go_on = asyncio.Event()

        async def app(_scope: Scope, receive: Receive, send: Send) -> None:
            await go_on.wait()

        admission = Admission(app, in_flight_max=10, per_client_max=3)
        hog, other = Client(), Client()
        waiting = [asyncio.create_task(admission(scope("/"), _receive, hog.send)) for _ in range(3)]
        await asyncio.sleep(0)
        await admission(scope("/"), _receive, hog.send)
        assert hog.status == 403 and b"3 of them yours" in hog.body
        waiting.append(asyncio.create_task(admission(scope("/", client="10.0.0.2"), _receive, other.send)))
        await asyncio.sleep(0)
        assert (admission.in_flight, other.status) == (4, 0)
        go_on.set()
        await asyncio.gather(*waiting)
        assert (admission.in_flight, admission.refused) == (0, 1)

    asyncio.run(story())
