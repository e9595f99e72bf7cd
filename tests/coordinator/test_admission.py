"""More requests than the coordinator works on at once get an answer that clients repeat after."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from peacefs.coordinator.api.admission import Admission
from peacefs.protocol.asgi import Message, Receive, Scope, Send
from peacefs.protocol.errors import from_remote_exception


async def _receive() -> Message:
    return {"type": "http.disconnect"}


class Client:
    """Keeps what it was sent."""

    def __init__(self) -> None:
        self.status = 0
        self.body = b""

    async def send(self, message: Message) -> None:
        self.status = message.get("status", self.status)
        self.body += message.get("body", b"")


def scope(path: str) -> dict[str, Any]:
    return {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [],
    }


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
