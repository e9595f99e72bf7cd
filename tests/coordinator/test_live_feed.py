"""Live views: one computation per view for all viewers, none without viewers, and every stream ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from peacefs.coordinator.api.live import LiveFeed
from peacefs.protocol.asgi import Message
from peacefs.protocol.errors import AccessDenied, Overloaded

_PATIENCE_S = 60.0


class Viewer:
    """A viewer, until it leaves or the stream ends."""

    def __init__(
        self, feed: LiveFeed, look: Callable[[], Awaitable[bytes]], key: str = "k", client: str = "c"
    ) -> None:
        self._came: asyncio.Queue[bytes] = asyncio.Queue()
        self._gone = asyncio.Event()
        self.status = 0
        stream = feed.stream("view", look, client, b"event: session\ndata: {}\n\n")
        self.task = asyncio.create_task(stream({"type": "http"}, self._receive, self._send))

    async def _receive(self) -> Message:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        self.status = message.get("status", self.status)
        if message.get("body"):
            self._came.put_nowait(message["body"])

    async def next(self) -> str:
        """Return name and data of the next event; keep-alive lines have none."""
        event = (await asyncio.wait_for(self._came.get(), _PATIENCE_S)).decode()
        return event.removeprefix("event: ").replace("\ndata: ", " ").strip()

    async def go(self) -> None:
        self._gone.set()
        await asyncio.wait_for(self.task, _PATIENCE_S)


class Counted:
    """A view that changes on request."""

    def __init__(self) -> None:
        self.value = b"1"
        self.looks = 0
        self.looked = asyncio.Event()
        self.refusal: Exception | None = None

    async def __call__(self) -> bytes:
        self.looks += 1
        self.looked.set()
        if self.refusal is not None:
            raise self.refusal
        return self.value

    async def look_again(self) -> None:
        """Wait for two computations, since the first of them may have begun earlier."""
        for _ in range(2):
            self.looked.clear()
            await asyncio.wait_for(self.looked.wait(), _PATIENCE_S)


def played(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 2 * _PATIENCE_S))


def test_viewers_of_one_view_share_a_look_and_are_told_of_changes_alone() -> None:
    async def story() -> None:
        feed, view = LiveFeed(interval_s=0.001), Counted()
        viewers = [Viewer(feed, view, client=f"c{number}") for number in range(5)]
        for viewer in viewers:
            assert await viewer.next() == "session {}"
            assert await viewer.next() == "view 1"
        before = view.looks
        await view.look_again()
        # Five viewers, and still one computation at a time.
        assert view.looks <= before + 3
        view.value = b"2"
        assert [await viewer.next() for viewer in viewers] == ["view 2"] * 5
        assert feed.viewers == 5
        for viewer in viewers:
            await viewer.go()
        assert feed.viewers == 0

    played(story)


def test_viewers_who_have_gone_cost_nothing_more() -> None:
    async def story() -> None:
        feed, view, tasks = LiveFeed(interval_s=0.001), Counted(), asyncio.all_tasks()
        viewer = Viewer(feed, view)
        await view.look_again()
        await viewer.go()
        # All ready tasks have run: a view that still had viewers would have been computed again.
        before = view.looks
        for _ in range(100):
            await asyncio.sleep(0.001)
        assert (view.looks, feed.looks_total) == (before, before)
        assert asyncio.all_tasks() == tasks

        again = Viewer(feed, view)
        assert [await again.next(), await again.next()] == ["session {}", "view 1"]
        await again.go()

    played(story)


def test_viewer_whose_time_is_over_is_told_to_ask_again() -> None:
    async def story() -> None:
        now = [0.0]
        feed, view = LiveFeed(interval_s=0.001, stream_s_max=60.0, clock=lambda: now[0]), Counted()
        viewer = Viewer(feed, view)
        assert [await viewer.next(), await viewer.next()] == ["session {}", "view 1"]
        now[0], view.value = 61.0, b"2"
        assert [await viewer.next(), await viewer.next()] == ["view 2", "again {}"]
        await asyncio.wait_for(viewer.task, _PATIENCE_S)
        assert feed.viewers == 0

    played(story)


def test_viewer_of_what_never_changes_hears_that_the_stream_lives() -> None:
    async def story() -> None:
        feed, view = LiveFeed(interval_s=0.001, keep_alive_s=0.01), Counted()
        viewer = Viewer(feed, view)
        assert [await viewer.next() for _ in range(4)] == ["session {}", "view 1", *[": nothing is new"] * 2]
        await viewer.go()

    played(story)


def test_viewer_is_told_why_a_view_is_refused_or_that_it_failed() -> None:
    async def story() -> None:
        feed, view = LiveFeed(interval_s=0.001), Counted()
        for refusal, said in ((AccessDenied("not yours"), "not yours"), (ValueError("inner"), "internal error")):
            view.refusal = refusal
            viewer = Viewer(feed, view)
            assert await viewer.next() == "session {}"
            told = await viewer.next()
            assert told.startswith("refused ") and said in told and "inner" not in told
            await asyncio.wait_for(viewer.task, _PATIENCE_S)
        view.refusal = None
        viewer = Viewer(feed, view)
        assert [await viewer.next(), await viewer.next()] == ["session {}", "view 1"]
        await viewer.go()

    played(story)


def test_viewers_of_one_client_leave_room_to_others() -> None:
    async def story() -> None:
        feed, view = LiveFeed(interval_s=0.001, viewers_max=3, per_client_max=2), Counted()
        viewers = [Viewer(feed, view, client="greedy") for _ in range(2)]
        for viewer in viewers:
            await viewer.next()
        with pytest.raises(Overloaded, match="2 pages are open already, 2 of them yours"):
            Viewer(feed, view, client="greedy")
        viewers.append(Viewer(feed, view, client="modest"))
        await viewers[-1].next()
        with pytest.raises(Overloaded, match="3 pages are open already, 0 of them yours"):
            Viewer(feed, view, client="late")
        for viewer in viewers:
            await viewer.go()

    played(story)


def test_viewers_do_not_keep_a_coordinator_from_ending() -> None:
    async def story() -> None:
        feed, view = LiveFeed(interval_s=0.001), Counted()
        viewer = Viewer(feed, view)
        assert [await viewer.next(), await viewer.next()] == ["session {}", "view 1"]
        feed.stop()
        assert await viewer.next() == "again {}"
        await asyncio.wait_for(viewer.task, _PATIENCE_S)

    played(story)


def test_viewer_who_takes_nothing_in_is_told_the_latest_alone() -> None:
    async def story() -> None:
        feed, view = LiveFeed(interval_s=0.001), Counted()
        taking, gone, shown = asyncio.Event(), asyncio.Event(), asyncio.Event()
        came: list[bytes] = []

        async def send(message: Any) -> None:
            await taking.wait()
            came.append(message.get("body", b""))
            if b"view" in came[-1]:
                shown.set()

        async def receive() -> Message:
            await gone.wait()
            return {"type": "http.disconnect"}

        stream = asyncio.create_task(feed.stream("view", view, "c", b"opening")({"type": "http"}, receive, send))
        other = Viewer(feed, view)
        for value in (b"2", b"3", b"4"):
            view.value = value
            while not (await other.next()).endswith(value.decode()):
                pass
        taking.set()
        await asyncio.wait_for(shown.wait(), _PATIENCE_S)
        assert [body for body in came if b"view" in body] == [b"event: view\ndata: 4\n\n"]
        gone.set()
        await asyncio.wait_for(stream, _PATIENCE_S)
        await other.go()

    played(story)
