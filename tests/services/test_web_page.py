"""The web page in a real Chromium on real clusters: its contents, and no errors on the console."""

from __future__ import annotations

import getpass
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support import checkpoints
from support.browser import Browser, Page, browser
from support.failover_cluster import failover_cluster
from support.prometheus import scraped
from support.slow_datanode import datanode_with_a_slow_disk
from support.waiting import wait_until

from peacefs.client.control.token_administration import TokenAdministration
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.limits import MIB
from peacefs.spark_connector.checkpoints.ancestry import ANCESTRY_ATTRIBUTE
from peacefs.spark_connector.checkpoints.relocation import fork
from peacefs.spark_connector.checkpoints.tree import PeaceTree
from peacefs.spark_connector.supervision.registration import supervise

pytestmark = pytest.mark.cluster
#: Names that would have an effect if taken for markup, or for a part of a URL.
HOSTILE = (
    "<img src=x onerror=window.hit=1>",
    '"><script>window.hit=1<',
    "'onclick='window.hit=1",
    "a?chunk=1-7#x&y=%3Cb%3E",
    "{{7*7}}${7*7}",
)
_PHONE = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark", "has_touch": True}


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def cluster(chrome: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Yield a cluster. Needs the browser, so that nothing is started without one."""
    with LocalCluster(tmp_path_factory.mktemp("page"), datanodes=4, port=0) as cluster:
        with PeaceFileSystem(cluster.http_address) as files:
            files.write("/reports/large", os.urandom(3 * MIB))
            for name in HOSTILE:
                files.write(f"/hostile/{name}", b"harmless")
        yield cluster


def address(cluster: LocalCluster, view: str = "") -> str:
    return f"{cluster.http_address}/ui/{f'#/{view}' if view else ''}"


def metric(cluster: LocalCluster, name: str) -> float:
    return scraped(cluster.http_address.removeprefix("http://"))[name, ""]


def viewers(cluster: LocalCluster) -> float:
    return metric(cluster, "peacefs_page_viewers")


def is_live(page: Page) -> None:
    page.page.wait_for_selector("#connection[data-state=live]")


def go(page: Page, view: str, heading: str) -> None:
    page.page.evaluate("view => { location.hash = view; }", f"#/{view}")
    page.page.get_by_role("heading", name=heading, level=1, exact=True).wait_for()


@pytest.mark.parametrize("look", [{}, _PHONE], ids=["desk", "phone in the dark"])
def test_page_opens_every_view_and_is_accessible(
    chrome: Browser, cluster: LocalCluster, look: dict[str, Any]
) -> None:
    with chrome.page(address(cluster), **look) as page:
        page.see("None: all is well.")
        assert page.page.locator("[data-node]").count() == 4
        assert page.faults() == []
        for view, heading, seen in (
            ("files/reports", "/reports", "large"),
            ("files/reports/large", "/reports/large", "On the racks"),
            ("peace", "Peace", "Links now"),
            ("checkpoints", "Checkpoints", "There are none that you may list."),
            ("queries", "Supervised queries", "No agent is alive"),
        ):
            go(page, view, heading)
            page.see(seen)
            is_live(page)
            assert page.faults() == [], view
            width, window = page.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
            assert width <= window, f"{view} is wider than the window"


def test_page_is_worked_by_the_keyboard(chrome: Browser, cluster: LocalCluster) -> None:
    with chrome.page(address(cluster)) as page:
        page.see("None: all is well.")
        page.page.keyboard.press("Tab")
        assert page.page.evaluate("document.activeElement.textContent") == "Skip to the content"
        for name in ("Cluster", "Files"):
            page.page.keyboard.press("Tab")
            assert page.page.evaluate("document.activeElement.textContent") == name
        page.page.keyboard.press("Enter")
        page.see("reports/")
        # The new view has the focus, and its first link is next.
        assert page.page.evaluate("document.activeElement.id") == "main"
        go(page, "cluster", "Cluster")
        disks = page.page.locator("summary").first
        disks.focus()
        page.page.keyboard.press("Enter")
        looks = scraped(cluster.http_address.removeprefix("http://"))["peacefs_page_looks_total", ""]
        wait_until(
            lambda: (
                scraped(cluster.http_address.removeprefix("http://"))["peacefs_page_looks_total", ""] > looks + 2
            ),
            "the view was made anew meanwhile",
        )
        # Focus stays, and so do opened parts.
        assert disks.evaluate("each => document.activeElement === each && each.parentElement.open")


def test_page_takes_names_of_files_for_text(chrome: Browser, cluster: LocalCluster) -> None:
    with chrome.page(address(cluster, "files/hostile")) as page:
        for name in HOSTILE:
            page.page.get_by_role("link", name=name, exact=True).click()
            page.page.get_by_role("heading", name=f"/hostile/{name}", exact=True).wait_for()
            page.see("On the racks")
            assert page.page.evaluate("window.hit") is None
            assert page.page.locator("main img, main script, main b").count() == 0
            page.page.get_by_role("link", name="hostile", exact=True).click()


def test_page_escapes_what_reorders_text_and_says_zones(chrome: Browser, cluster: LocalCluster) -> None:
    with PeaceFileSystem(cluster.http_address) as files:
        files.write("/bidi/a\u202efdp.exe\x1b[2J", b"")
    with chrome.page(address(cluster, "files/bidi"), timezone_id="Asia/Kathmandu", locale="en-GB") as page:
        row = page.page.locator("tbody tr")
        row.wait_for()
        assert "a\\u202efdp.exe\\u001b[2J" in row.text_content()
        assert "GMT+5:45" in row.text_content()
        assert not {"\u202e", "\x1b"} & set(page.page.locator("body").text_content())
        row.get_by_role("link").click()
        page.page.get_by_role("heading", name="/bidi/a\\u202efdp.exe\\u001b[2J", exact=True).wait_for()


def test_page_pages_filters_and_sorts_long_tables(chrome: Browser, cluster: LocalCluster) -> None:
    names = [f"f-{number * 7919 % 1000:04}" for number in range(1000)]
    with PeaceFileSystem(cluster.http_address) as files:
        for number, name in enumerate(names):
            files.write(f"/many/{name}", b"x" * (900 + number) if number > 994 else b"")
    with chrome.page(address(cluster, "files/many")) as page:
        rows = page.page.locator("[aria-label='Names in /many'] tbody tr")
        page.see("1 to 50 of 1000")
        assert rows.locator("a").all_text_contents() == sorted(names)[:50]
        page.page.get_by_role("button", name="Next").click()
        page.see("51 to 100 of 1000")
        assert rows.locator("a").all_text_contents() == sorted(names)[50:100]
        page.page.get_by_role("button", name="Size").click()
        page.page.get_by_role("button", name="Size").click()
        page.page.locator("th[aria-sort=descending]").wait_for()
        assert rows.locator("a").all_text_contents()[:5] == names[:994:-1]
        page.page.get_by_role("searchbox").fill("-03")
        page.see("1 to 50 of 100 that match, of 1000")
        assert page.page.evaluate("document.activeElement.type") == "search"
        page.page.get_by_role("searchbox").fill("f-0317")
        page.see("1 to 1 of 1 that match, of 1000")
        assert rows.locator("a").all_text_contents() == ["f-0317"]
        assert page.faults() == []


def test_page_pages_queries_and_opens_what_they_will_write(chrome: Browser, cluster: LocalCluster) -> None:
    with PeaceFileSystem(cluster.http_address) as files:
        files.mkdirs("/flows/q-073")
        for number in range(100):
            name = f"q-{number:03}"
            supervise(["absent"], coordinator=cluster.http_address, name=name, checkpoint=f"/flows/{name}")
    with chrome.page(address(cluster, "queries")) as page:
        page.see("1 to 50 of 100")
        assert page.page.locator("[data-query]").count() == 50
        page.page.get_by_role("searchbox").fill("q-073")
        page.page.locator("[data-query=q-074]").wait_for(state="detached")
        page.see("no agent is alive: start `peacefs agent`")
        assert page.faults() == []
        page.expect("400")
        page.page.get_by_role("link", name="/flows/q-073").click()
        page.see("It has no checkpoint yet")
        is_live(page)
        assert page.faults() == []


def test_page_explains_a_chunk_to_a_superuser_and_refuses_others_in_words(
    chrome: Browser, cluster: LocalCluster
) -> None:
    with chrome.page(address(cluster, "files/reports/large")) as page:
        page.expect("403")
        chunk = page.page.locator("button.mono").first
        chunk.click()
        page.see("Access denied for user dr.who")
        page.page.get_by_label("User").fill(getpass.getuser())
        page.page.get_by_role("button", name="Use").click()
        page.page.locator("button.mono").first.click()
        page.see("What happened, as far as it is remembered")
        page.page.locator("#chunk").get_by_role("link", name="/reports/large").wait_for()
        assert page.faults() == []


def test_page_downloads_a_file(chrome: Browser, cluster: LocalCluster) -> None:
    with chrome.page(address(cluster, "files/hostile/" + "%7B%7B7*7%7D%7D$%7B7*7%7D")) as page:
        page.hosts |= {f"127.0.0.1:{each.readiness.http_port}" for each in cluster.datanodes}
        with page.page.expect_download() as begun:
            page.page.get_by_role("button", name="Download").click()
        assert Path(begun.value.path()).read_bytes() == b"harmless"


def test_page_shows_a_write_while_it_goes_on_and_afterwards(chrome: Browser, cluster: LocalCluster) -> None:
    goes_on = threading.Event()

    def body() -> Iterator[bytes]:
        yield b"a" * (2 * MIB)
        goes_on.wait(300)
        yield b"b" * MIB

    def write() -> None:
        with httpx.Client(timeout=300, follow_redirects=False) as client:
            begun = client.put(f"{cluster.http_address}/webhdfs/v1/slow/file?op=CREATE&user.name=ann")
            assert client.put(begun.headers["location"], content=body()).status_code == 201

    with chrome.page(address(cluster, "peace")) as page:
        page.see("No large chunk is being written.")
        writer = threading.Thread(target=write)
        writer.start()
        try:
            row = page.page.locator("[aria-label='Who writes to whom'] tbody tr")
            row.wait_for()
            assert "\u2192" in row.text_content()
            page.page.locator(
                "[aria-label='Topology'] .link.some, [aria-label='Topology'] .link.full"
            ).first.wait_for()
            page.page.locator(".bar-warn").first.wait_for()
            assert page.faults() == []
        finally:
            goes_on.set()
            writer.join()
        page.see("No large chunk is being written.")
        page.page.locator("[aria-label^='Grants of each datanode'] rect.bar").first.wait_for()


def test_page_draws_plans_of_policies_side_by_side(chrome: Browser, cluster: LocalCluster) -> None:
    with chrome.page(address(cluster, "peace")) as page:
        page.see("Links now")
        is_live(page)
        page.page.get_by_label("Chunks of 64 MiB each").fill("2")
        page.page.get_by_role("button", name="Plan").click()
        page.see("5 policies compared.")
        for policy in ("random", "paper", "express"):
            assert page.page.locator(f"[data-plan={policy}] rect").count() >= 3 * 2
        assert page.faults() == []
        page.expect("400")
        page.page.get_by_label("Replicas").fill("5")
        page.page.get_by_role("button", name="Plan").click()
        page.see("5 replicas need as many servers; there are 4")


def test_page_opens_a_checkpoint_to_its_batches_and_verifies_it(chrome: Browser, cluster: LocalCluster) -> None:
    with PeaceFileSystem(cluster.http_address) as files:
        for name, data in checkpoints.checkpoint(root="/checkpoints/orders", batches=3).files.items():
            files.write(name, data)
    with chrome.page(address(cluster, "checkpoints")) as page:
        page.page.get_by_role("link", name="/checkpoints/orders").click()
        page.page.get_by_role("button", name="Verify").click()
        page.see("It would go on with batch 3. The last batch that can be restored is 2.")
        assert page.page.locator("figure").count() == 2
        page.page.get_by_role("button", name="1", exact=True).click()
        page.page.get_by_role("link", name="offsets/1").wait_for()
        assert page.faults() == []
        page.page.get_by_role("link", name="offsets/1").click()
        page.page.get_by_role("heading", name="/checkpoints/orders/offsets/1", exact=True).wait_for()


@pytest.mark.parametrize(
    "look",
    [
        pytest.param({}, id="desk"),
        pytest.param(_PHONE, id="phone in the dark", marks=pytest.mark.long("the desk is always tried")),
    ],
)
def test_page_draws_checkpoints_that_were_made_of_each_other(
    chrome: Browser, cluster: LocalCluster, look: dict[str, Any]
) -> None:
    with PeaceFileSystem(cluster.http_address) as files:
        top = f"/made/{len(look)}"
        tree = PeaceTree(files)
        for name, data in checkpoints.checkpoint(root=f"{top}/orders", batches=3).files.items():
            files.write(name, data)
        fork(tree, f"{top}/orders", f"{top}/fork<b>")
        fork(tree, f"{top}/fork<b>", f"{top}/fork-2")
        files.rename(f"{top}/orders", f"{top}/moved")
        fork(tree, f"{top}/moved", f"{top}/fork-3")
        files.xattrs.set(f"{top}/fork-2", ANCESTRY_ATTRIBUTE, b"damaged")
        for name, data in checkpoints.checkpoint(root=f"{top}/lone", batches=2).files.items():
            files.write(name, data)
        fork(tree, f"{top}/lone", f"{top}/orphan")
        files.delete(f"{top}/lone", recursive=True)
    with chrome.page(address(cluster, "checkpoints"), **look) as page:
        family = page.page.get_by_role("list", name=f"Made of {top}/moved", exact=True)
        family.wait_for()
        # Each member is below its source; unreadable ones are marked in place.
        assert family.locator(":scope > li > ul > li > .row > a").all_text_contents() == [
            f"{top}/fork<b>",
            f"{top}/fork-3",
        ]
        page.see("its record of where it came from is damaged")
        gone = page.page.get_by_role("list", name=f"Made of {top}/lone", exact=True)
        assert "gone" in gone.locator("li").first.text_content()
        assert page.faults() == []
        width, window = page.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert width <= window, "it is wider than the window"
        # Move by keyboard from member to member, and to a member's page, which shows its family.
        family.get_by_role("link", name=f"{top}/moved", exact=True).focus()
        page.page.keyboard.press("Tab")
        assert page.page.evaluate("document.activeElement.textContent") == f"{top}/fork<b>"
        page.page.keyboard.press("Enter")
        page.page.get_by_role("heading", name=f"{top}/fork<b>", level=1, exact=True).wait_for()
        page.page.locator("#family [aria-current=page]").wait_for()
        assert "fork" in page.page.locator("#family").text_content()
        assert page.faults() == []


def test_page_says_why_a_datanode_is_slow_and_what_to_do(chrome: Browser, tmp_path: Path) -> None:
    with (
        LocalCluster(tmp_path / "cluster", datanodes=3, port=0) as cluster,
        datanode_with_a_slow_disk(cluster, tmp_path / "slow") as slow,
        PeaceFileSystem(cluster.http_address) as files,
        chrome.page(address(cluster)) as page,
    ):
        stop = threading.Event()

        def write() -> None:
            number = 0
            while not stop.is_set():
                files.write(f"/written/{number}", os.urandom(MIB // 2), replication=3)
                number += 1

        writer = threading.Thread(target=write)
        writer.start()
        try:
            page.see(f"Datanode {slow} is slow at its disk")
            card = page.page.locator(f"[data-node={slow}] .slow[data-key=disk]")
            # On a busy machine its heartbeats may be late for a while, which is shown instead.
            card.get_by_text("takes long to write and to fsync").wait_for()
            card.get_by_text("On 127.0.0.1 look at the disk's own diagnosis (smartctl)").wait_for()
            card.get_by_text("To do: ").wait_for()
            assert page.faults() == []
        finally:
            stop.set()
            writer.join()


def test_page_that_is_hidden_costs_nothing_and_goes_on_when_it_is_shown(
    chrome: Browser, cluster: LocalCluster
) -> None:
    with chrome.page(address(cluster)) as page:
        is_live(page)
        wait_until(lambda: viewers(cluster) == 1, "the page is counted")
        change = """state => {
            Object.defineProperty(document, "visibilityState", {configurable: true, get: () => state});
            document.dispatchEvent(new Event("visibilitychange"));
        }"""
        page.page.evaluate(change, "hidden")
        page.page.wait_for_selector("#connection[data-state=paused]")
        wait_until(lambda: viewers(cluster) == 0, "nobody looks")
        page.page.evaluate(change, "visible")
        is_live(page)
    wait_until(lambda: viewers(cluster) == 0, "the page was closed")


def test_page_of_a_browser_that_slept_for_an_hour_connects_again(chrome: Browser, cluster: LocalCluster) -> None:
    # A stopped clock stays with the browser profile.
    with chrome.page("about:blank", fresh=True) as page:
        page.hosts = {f"{cluster.address.host}:{cluster.address.port}"}
        page.page.clock.install()
        page.page.goto(address(cluster))
        is_live(page)
        with page.page.expect_request("**/v1/live/cluster"):
            page.page.clock.fast_forward("01:00:00")
        is_live(page)


def test_page_shows_a_dead_datanode_and_a_repair_that_ends(chrome: Browser, cluster: LocalCluster) -> None:
    victim = cluster.datanodes[0]
    with chrome.page(address(cluster)) as page:
        page.see("None: all is well.")
        victim.kill()
        page.see("is dead. What it held is copied from other replicas.")
        page.see("Start it again on 127.0.0.1")
        page.page.locator("[data-node] .badge.bad").wait_for()
        page.see("The last repair is done")
        assert page.faults() == []
        cluster.restart(victim)
        page.see("None: all is well.")


def test_page_says_that_the_coordinator_has_gone_and_comes_back_with_it(
    chrome: Browser, cluster: LocalCluster
) -> None:
    with chrome.page(address(cluster)) as page:
        page.expect("net::ERR")
        page.see("None: all is well.")
        cluster.coordinator.kill()
        page.page.wait_for_selector("#connection[data-state=waiting]")
        cluster.restart(cluster.coordinator)
        is_live(page)
        page.see("epoch 2")


def test_page_of_a_standby_names_the_leader(chrome: Browser, tmp_path: Path) -> None:
    with failover_cluster(tmp_path, datanodes=1) as cluster:
        standby = next(at for at in (0, 1) if cluster.stands_by(at))
        leader = cluster.http[1 - standby]
        with chrome.page(f"http://{cluster.http[standby]}/ui/") as page:
            page.see("This coordinator stands by")
            link = page.page.get_by_role("link", name=leader)
            assert link.get_attribute("href") == f"http://{leader}/ui/"
            page.page.get_by_role("region", name="Coordinators that share the journal").wait_for()
            assert page.faults() == []
        assert httpx.get(f"http://{cluster.http[standby]}/health/live").status_code == 200
        answer = httpx.get(f"http://{cluster.http[standby]}/health/ready")
        assert (answer.status_code, answer.json()["problems"]) == (503, ["standby: another coordinator leads"])
        assert httpx.get(f"http://{leader}/health/ready").json()["role"] == "leader"


def test_page_asks_for_a_token_and_works_with_one(chrome: Browser, tmp_path: Path) -> None:
    options = ["--authentication=token"]
    with (
        LocalCluster(tmp_path, datanodes=1, port=0, coordinator_options=options) as cluster,
        TokenAdministration(f"unix:{cluster.directory}") as administration,
    ):
        token = administration.create("ann", 3600)
        with PeaceFileSystem(
            cluster.http_address, token=administration.create("root", 3600, administrator=True).token
        ) as files:
            files.write("/f", b"for ann", replication=1)
        with chrome.page(address(cluster, "files/f")) as page:
            page.expect("401")
            page.hosts |= {f"127.0.0.1:{each.readiness.http_port}" for each in cluster.datanodes}
            page.see("A token, please")
            assert page.faults() == []
            page.page.get_by_label("Token").fill("no token")
            with page.page.expect_response("**/v1/live/cluster") as answered:
                page.page.keyboard.press("Enter")
            assert answered.value.status == 401
            page.see("A token, please")
            page.page.get_by_label("Token").fill(token.token)
            page.page.keyboard.press("Enter")
            page.page.get_by_role("heading", name="/f", exact=True).wait_for()
            page.see("ann")
            with page.page.expect_download() as begun:
                page.page.get_by_role("button", name="Download").click()
            assert Path(begun.value.path()).read_bytes() == b"for ann"
            # No persistent storage contains the token.
            assert page.page.evaluate("localStorage.length") == 0
            assert page.page.context.cookies() == []
            # After a revocation, the open stream ends within a minute, and the next request fails at once.
            administration.revoke(token.id)
            page.page.reload()
            page.see("A token, please")
            page.page.evaluate("sessionStorage.clear()")


def test_health_of_a_coordinator_that_hangs_is_no_answer(cluster: LocalCluster) -> None:
    url = f"{cluster.http_address}/health/live"
    assert httpx.get(url, timeout=60).json() == {"ok": True, "role": "leader", "problems": []}
    process = cluster.coordinator.readiness.pid
    os.kill(process, signal.SIGSTOP)
    try:
        with pytest.raises(httpx.TimeoutException):
            httpx.get(url, timeout=1)
    finally:
        os.kill(process, signal.SIGCONT)
    wait_until(lambda: httpx.get(url, timeout=60).status_code == 200, "it answers again")
