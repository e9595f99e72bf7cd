"""Bodies of REST requests that are too long or too slow are refused; others are unaffected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import Body, FastAPI, Request

from peacefs.coordinator.api.rest import body_limit
from peacefs.coordinator.api.rest.body_limit import BodyLimit


@pytest.fixture
def app() -> FastAPI:
    app = FastAPI()
    app.add_middleware(BodyLimit, of_path={"/raw": 100})

    @app.post("/raw")
    async def raw(request: Request) -> int:
        return len(await request.body())

    @app.post("/parsed")
    async def parsed(body: list[int] = Body()) -> int:  # noqa: B008
        return len(body)

    @app.post("/slow")
    async def slow(request: Request) -> int:
        """Work for longer than the body may take, and watch whether the client is still connected."""
        await request.body()
        watch = asyncio.create_task(request.receive())
        await asyncio.sleep(0.3)
        assert not watch.done()
        watch.cancel()
        return 7

    return app


async def ask(app: FastAPI, path: str, body: AsyncIterator[bytes], client: str = "10.0.0.1") -> httpx.Response:
    transport = httpx.ASGITransport(app, client=(client, 40_000))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as asking, asyncio.timeout(20):
        return await asking.post(path, content=body, headers={"content-type": "application/json"})


def post(app: FastAPI, path: str, pieces: list[bytes], pause_s: float = 0.0) -> httpx.Response:
    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            await asyncio.sleep(pause_s)
            yield piece

    return asyncio.run(ask(app, path, body()))


@pytest.mark.parametrize("path", ["/raw", "/parsed"])
@pytest.mark.evidence("trickling-request")
def test_a_body_that_drips_is_given_up_however_steadily(
    app: FastAPI, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_limit, "control_body_timeout_s", 0.2)
    answer = post(app, path, [b" "] * 90 + [b"[1]"], pause_s=0.05)
    assert answer.status_code == 408
    assert "the body did not arrive within 0.2 s" in answer.text
    assert post(app, path, [b" "] * 2 + [b"[1]"], pause_s=0.01).status_code == 200


def test_a_body_over_its_paths_limit_is_refused(app: FastAPI) -> None:
    assert post(app, "/raw", [b"x" * 60] * 2).status_code == 400
    assert post(app, "/raw", [b"x" * 50] * 2).text == "100"


def test_body_deadline_does_not_cover_the_work_after_it(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_limit, "control_body_timeout_s", 0.1)
    assert post(app, "/slow", [b"x"]).text == "7"


def test_bodies_under_way_have_a_bound_together_and_one_client_leaves_room_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(body_limit, "rest_bodies_bytes_max", 250)
    monkeypatch.setattr(body_limit, "rest_bodies_per_client_bytes_max", 150)
    app = FastAPI()
    app.add_middleware(BodyLimit, of_path={})

    @app.post("/raw")
    async def raw(request: Request) -> int:
        return len(await request.body())

    async def story() -> None:
        go_on, begun = asyncio.Event(), asyncio.Event()

        async def slow() -> AsyncIterator[bytes]:
            yield b"x" * 100
            begun.set()
            await go_on.wait()

        async def whole() -> AsyncIterator[bytes]:
            yield b"x" * 100

        first = asyncio.create_task(ask(app, "/raw", slow()))
        await begun.wait()
        assert (await ask(app, "/raw", whole())).status_code == 503
        assert (await ask(app, "/raw", whole(), client="10.0.0.2")).text == "100"
        go_on.set()
        assert (await first).text == "100"
        assert (await ask(app, "/raw", whole())).text == "100"

    asyncio.run(story())
