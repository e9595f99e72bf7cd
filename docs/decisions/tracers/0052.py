import asyncio

from peacefs.coordinator.api.live import LiveFeed
from peacefs.coordinator.api.rest.web_page import PAGE_POLICY

assert "require-trusted-types-for 'script'" in PAGE_POLICY and "unsafe" not in PAGE_POLICY


async def story():
    feed, gone, shown = LiveFeed(interval_s=0.001), asyncio.Event(), []

    async def look():
        return b'{"looks":%d}' % feed.looks_total

    async def receive():
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        shown.append(message.get("body", b""))
        if len(shown) > 8:
            gone.set()

    for _ in range(20):
        await asyncio.sleep(0.001)
    assert feed.looks_total == 0  # nobody looks
    streams = [feed.stream("a view", look, "somebody", b"")({"type": "http"}, receive, send) for _ in range(3)]
    await asyncio.wait_for(asyncio.gather(*streams), 60)
    assert feed.looks_total >= 1 and feed.viewers == 0
    looks = feed.looks_total
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert feed.looks_total == looks  # nobody looks any more


asyncio.run(story())
