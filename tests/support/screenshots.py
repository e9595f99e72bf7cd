"""Make the pictures of `docs/web-page.md` in Chromium, from a busy cluster: `make screenshots`."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

import httpx
from support import checkpoints as made
from support.browser import Page, browser
from support.slow_datanode import datanode_with_a_slow_disk
from support.waiting import wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.limits import MIB
from peacefs.spark_connector.checkpoints.relocation import fork
from peacefs.spark_connector.checkpoints.rollback import RollbackRequest, roll_back
from peacefs.spark_connector.checkpoints.tree import PeaceTree

_PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
_WINDOW = {"width": 1100, "height": 800}
_TALL = {"width": 950, "height": 1120}
_PHONE = {"width": 390, "height": 780}
_BYTES_MAX = 150_000
_CHECKPOINT = "/checkpoints/orders"


def main() -> None:
    """Make all pictures. Fail if one is too large for a page."""
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalCluster(
            Path(directory), datanodes=6, port=0, coordinator_options=["--streams-per-node=1"]
        ) as cluster,
        browser() as chrome,
    ):
        _fill(cluster)
        url = f"{cluster.http_address}/ui/"
        with chrome.page(url, viewport=_TALL) as page, _writers(cluster):
            _visit(page, "peace", "#peace td")
            wait_until(lambda: page.page.locator("[aria-label='What waits, and why'] td").count(), "a set waits")
            # Create events for the time line.
            page.page.wait_for_timeout(6000)
            _picture(page, "web-page-peace")
            page.page.locator("[data-key=line]").screenshot(path=_PICTURES / "web-page-line.png")
        with chrome.page(url, viewport=_WINDOW) as page:
            _visit(page, "peace", ".box")
            page.page.get_by_role("button", name="Plan").click()
            page.see("3 policies compared.")
            page.page.locator("#plans").screenshot(path=_PICTURES / "web-page-plans.png")
            _visit(page, "files/tables/large", "#map")
            _picture(page, "web-page-file", whole=True)
            _visit(page, f"checkpoints{_CHECKPOINT}", "figure")
            page.page.get_by_role("button", name="Verify").click()
            page.see("it restarts")
            _picture(page, "web-page-checkpoint")
            _visit(page, "checkpoints", ".tree")
            page.page.locator("[aria-labelledby=ancestry]").screenshot(path=_PICTURES / "web-page-checkpoints.png")
            with datanode_with_a_slow_disk(cluster, Path(directory) / "slow") as slow:
                _visit(page, "cluster", ".rack")
                _write_until(
                    cluster, lambda: page.page.locator(f"[data-node={slow}] .slow[data-key=disk]").count() > 0
                )
                page.page.locator(f"[data-node={slow}]").screenshot(path=_PICTURES / "web-page-slow.png")
                page.page.evaluate("scrollTo(0, 0)")
                victim = cluster.datanodes[0]
                victim.kill()
                page.page.get_by_text(re.compile(r"^[1-9]\d* of \d+ chunks have")).wait_for()
                _picture(page, "web-page-cluster")
        with chrome.page(url, viewport=_PHONE, color_scheme="dark") as page:
            page.see("is dead")
            _picture(page, "web-page-phone")
    for picture in sorted(_PICTURES.glob("web-page-*.png")):
        print(f"{picture}: {picture.stat().st_size} bytes")
        if picture.stat().st_size > _BYTES_MAX:
            sys.exit(f"{picture.name} has more than {_BYTES_MAX} bytes")


def _fill(cluster: LocalCluster) -> None:
    now_ms, random = int(time.time() * 1000), Random(1)
    with PeaceFileSystem(cluster.http_address) as files:
        for number in range(300):
            files.write(f"/tables/part-{number}", os.urandom(2000))
        files.write("/tables/large", os.urandom(40 * MIB), block_bytes=8 * MIB)
        for name, data in made.checkpoint(root=_CHECKPOINT, batches=40).files.items():
            files.write(name, data)
        # Make it look as if a batch was done every five seconds.
        for batch in range(40):
            planned_ms = now_ms - (40 - batch) * 5000
            files.set_times(f"{_CHECKPOINT}/offsets/{batch}", modified_ms=planned_ms)
            done_ms = planned_ms + random.randrange(250, 420) + (900 if batch % 11 == 7 else 0)
            files.set_times(f"{_CHECKPOINT}/commits/{batch}", modified_ms=done_ms)
        # A family of runs: a trial run, its fork, and a rollback of the query.
        tree = PeaceTree(files)
        fork(tree, _CHECKPOINT, "/checkpoints/trial")
        fork(tree, "/checkpoints/trial", "/checkpoints/trial-eu")
        roll_back(files, RollbackRequest(_CHECKPOINT, 38, None, 0.0, may_differ=True))
        fork(tree, _CHECKPOINT, "/checkpoints/orders-replay")


def _write_until(cluster: LocalCluster, seen: Callable[[], bool]) -> None:
    """Write files of 1 MiB until the time is over."""
    number = 0
    with PeaceFileSystem(cluster.http_address) as files:
        while not seen():
            files.write(f"/tables/more/{number}", os.urandom(MIB))
            number += 1


@contextmanager
def _writers(cluster: LocalCluster) -> Iterator[None]:
    """Run more slow clients than there are slots."""
    stop = threading.Event()

    def body(pieces: int) -> Iterator[bytes]:
        for _ in range(pieces):
            yield b"x" * MIB
            stop.wait(0.5)

    def write(number: int) -> None:
        with httpx.Client(timeout=600) as client:
            path = f"{cluster.http_address}/webhdfs/v1/checkpoints/query-{number}/state/0/1/1.changelog"
            while not stop.is_set():
                begun = client.put(f"{path}?op=CREATE&overwrite=true&user.name=ann", follow_redirects=False)
                client.put(begun.headers["location"], content=body(2 + number % 3))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    with ExitStack() as ending:
        for thread in threads:
            thread.start()
            ending.callback(thread.join)
        ending.callback(stop.set)
        yield


def _visit(page: Page, view: str, shown: str) -> None:
    page.page.evaluate("view => { location.hash = view; }", f"#/{view}")
    page.page.locator(shown).first.wait_for()
    page.page.wait_for_selector("#connection[data-state=live]")


def _picture(page: Page, name: str, *, whole: bool = False) -> None:
    page.page.screenshot(path=_PICTURES / f"{name}.png", full_page=whole)


if __name__ == "__main__":
    main()
