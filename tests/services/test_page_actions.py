"""What administrators and users do on the web page, in a real Chromium: it asks before it acts.

What came of it is read by the commands and the client, not by the page.
"""

from __future__ import annotations

import getpass
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.browser import Browser, Page, browser
from support.waiting import wait_until

from peacefs.client.control.token_administration import TokenAdministration
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.spark_connector.supervision.registration import supervise

pytestmark = pytest.mark.cluster

_PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True}
_ME = getpass.getuser()


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit") / "audit.log"


@pytest.fixture(scope="module")
def cluster(chrome: Browser, audit: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    options = ("--trash-minutes=60", f"--audit-log={audit}")
    directory = tmp_path_factory.mktemp("acting")
    with LocalCluster(directory, datanodes=2, port=0, coordinator_options=options) as cluster:
        yield cluster


@pytest.fixture
def files(cluster: LocalCluster) -> Iterator[PeaceFileSystem]:
    with PeaceFileSystem(cluster.http_address, user=_ME) as opened:
        yield opened


def opened(chrome: Browser, cluster: LocalCluster, view: str, **look: Any) -> Any:
    """Return the page of a view, for nobody in particular."""
    return chrome.page(f"{cluster.http_address}/ui/#/{view}", **look)


def become(page: Page, user: str = _ME) -> None:
    page.page.get_by_label("User").fill(user)
    page.page.get_by_role("button", name="Use").click()
    page.page.wait_for_selector("#connection[data-state=live]")


def press(page: Page, name: str) -> None:
    page.page.get_by_role("button", name=name, exact=True).first.click()


def audited(audit: Path, word: str) -> list[dict[str, Any]]:
    """Return the records whose command or path has the word, when there are some."""

    def found() -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in audit.read_text().splitlines()]
        return [each for each in lines if word in f"{each['cmd']} {each.get('src')}"]

    wait_until(found, f"the audit log has {word}")
    return found()


@pytest.mark.parametrize("look", [{}, _PHONE], ids=["desk", "phone"])
def test_page_decides_of_a_datanode_after_a_yes_by_the_keyboard(
    chrome: Browser, cluster: LocalCluster, files: PeaceFileSystem, audit: Path, look: dict[str, Any]
) -> None:
    def service(node: str) -> str:
        nodes = {each["node"]: each["service"] for each in files.cluster_status()["datanodes"]}
        return str(nodes[node])

    with opened(chrome, cluster, "cluster", **look) as page:
        become(page)
        card = page.page.locator("[data-node]").first
        node = card.get_attribute("data-node")
        begin = card.get_by_role("button", name="Maintenance")
        begin.focus()
        page.page.keyboard.press("Enter")
        assert page.page.evaluate("document.activeElement.name") == "hours"
        page.page.keyboard.press("Escape")
        # Nothing was done, and the focus is where it was.
        assert page.page.evaluate("document.activeElement.textContent") == "Maintenance"
        assert service(node) == "in service"
        page.page.keyboard.press("Enter")
        page.page.keyboard.type("2")
        assert page.faults() == []
        width, window = page.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert width <= window, "it is wider than the window"
        page.page.keyboard.press("Enter")
        wait_until(lambda: "maintenance" in service(node), "it is in maintenance")
        card.get_by_role("button", name="Take into service").click()
        press(page, f"Take {node} into service")
        wait_until(lambda: service(node) == "in service", "it serves")
        assert {each["ugi"] for each in audited(audit, f"{node}/maintenance")} == {_ME}


def test_page_decommissions_and_refuses_who_may_not_in_the_words_of_the_coordinator(
    chrome: Browser, cluster: LocalCluster, files: PeaceFileSystem
) -> None:
    with opened(chrome, cluster, "cluster") as page:
        page.expect("403")
        become(page, "mallory")
        card = page.page.locator("[data-node]").last
        node = card.get_attribute("data-node")
        for user, said in (("mallory", "Access denied for user mallory"), (_ME, "decommission")):
            become(page, user)
            card.get_by_role("button", name="Decommission").click()
            press(page, f"Decommission {node}")
            card.get_by_text(said).first.wait_for()
        states = {each["node"]: each["service"] for each in files.cluster_status()["datanodes"]}
        assert states[node] in ("decommissioning", "decommissioned")
        card.get_by_role("button", name="Take into service").click()
        press(page, f"Take {node} into service")
        wait_until(
            lambda: {each["service"] for each in files.cluster_status()["datanodes"]} == {"in service"},
            "all serve again",
        )


def test_page_deletes_to_the_trash_and_puts_back(
    chrome: Browser, cluster: LocalCluster, files: PeaceFileSystem
) -> None:
    files.write("/work/a <b>&?#/notes", b"twice")
    with opened(chrome, cluster, "files/work") as page:
        become(page)
        page.page.get_by_role("link", name="a <b>&?#/").click()
        press(page, "Delete")
        # The page may ask once more for what it shows.
        page.expect("404")
        press(page, "Delete /work/a <b>&?#")
        page.page.get_by_role("button", name="Put back").wait_for()
        trashed = f"/user/{_ME}/.Trash/Current/work/a <b>&?#"
        assert files.read(f"{trashed}/notes") == b"twice" and not files.exists("/work/a <b>&?#")
        assert files.status(f"/user/{_ME}/.Trash").permission & 0o77 == 0
        # The home that was made on the way is an ordinary directory, as after `peacefs rm`.
        assert files.status(f"/user/{_ME}").permission == 0o755
        press(page, "Put back")
        press(page, "Put it back to /work/a <b>&?#")
        page.page.get_by_role("link", name="notes").wait_for()
        assert files.read("/work/a <b>&?#/notes") == b"twice" and not files.exists(trashed)
        # What is there is not replaced.
        files.rename("/work/a <b>&?#", trashed)
        files.write("/work/a <b>&?#/new", b"new")
        page.page.evaluate("view => { location.hash = view; }", f"#/files/user/{_ME}/.Trash/Current/work")
        page.page.get_by_role("link", name="a <b>&?#/").click()
        press(page, "Put back")
        page.expect("403")
        press(page, "Put it back to /work/a <b>&?#")
        page.page.get_by_role("alert").get_by_text("exist").wait_for()
        assert [each.name for each in files.list("/work/a <b>&?#")] == ["new"]


def test_page_deletes_for_good_only_what_was_named(
    chrome: Browser, cluster: LocalCluster, files: PeaceFileSystem
) -> None:
    files.write("/goes/away", b"1")
    with opened(chrome, cluster, "files/goes") as page:
        become(page)
        for name, goes in (("other", False), ("goes", True)):
            press(page, "Delete for good")
            page.page.get_by_label("Name: goes").fill(name)
            press(page, "Delete /goes for good")
            if not goes:
                page.see("Nothing is deleted: that is another name.")
                assert files.exists("/goes/away")
        page.page.get_by_role("heading", name="/", level=1, exact=True).wait_for()
        assert not files.exists("/goes")


def test_page_sets_quotas(chrome: Browser, cluster: LocalCluster, files: PeaceFileSystem) -> None:
    files.mkdirs("/bounded")
    with opened(chrome, cluster, "files/bounded") as page:
        become(page)
        press(page, "Change quotas")
        page.page.get_by_label("Names").fill("7")
        page.page.get_by_label("Bytes").fill("1000000000")
        press(page, "Set the quotas of /bounded")
        page.see("The quotas are set")
        summary = files.content_summary("/bounded")
        assert (summary.names_quota, summary.space_quota) == (7, 1_000_000_000)
        # What is left empty stays as it is.
        press(page, "Change quotas")
        page.page.get_by_label("Names").fill("-1")
        press(page, "Set the quotas of /bounded")
        wait_until(lambda: files.content_summary("/bounded").names_quota == -1, "there is no quota of names")
        assert files.content_summary("/bounded").space_quota == 1_000_000_000


def test_page_stops_starts_and_forgets_a_query(chrome: Browser, cluster: LocalCluster) -> None:
    def phase() -> str:
        listed = httpx.get(f"{cluster.http_address}/v1/queries", params={"user": _ME}).json()["queries"]
        return next((str(each["phase"]) for each in listed if each["name"] == "orders"), "none")

    supervise(["absent"], coordinator=cluster.http_address, name="orders", checkpoint="/flows/orders", user=_ME)
    with opened(chrome, cluster, "queries") as page:
        become(page)
        press(page, "Stop")
        press(page, "Stop orders")
        wait_until(lambda: phase() == "stopped", "it has stopped")
        press(page, "Start")
        press(page, "Start orders")
        wait_until(lambda: phase() == "waiting", "it is to be started")
        press(page, "Restart")
        press(page, "Restart orders")
        page.see("orders was stopped, and is to be started again.")
        assert phase() == "waiting"
        press(page, "Stop")
        press(page, "Stop orders")
        wait_until(lambda: phase() == "stopped", "it has stopped")
        assert page.faults() == []
        press(page, "Forget")
        press(page, "Forget orders")
        wait_until(lambda: phase() == "none", "it is forgotten")


def test_page_draws_the_last_day(chrome: Browser, cluster: LocalCluster, files: PeaceFileSystem) -> None:
    told = httpx.get(f"{cluster.http_address}/v1/history").json()
    assert told["interval_s"] == 60 and isinstance(told["samples"], list)
    sample = {"bytes_per_s": 2048.0, "changes_per_s": 1.5, "used_bytes": 1 << 30, "capacity_bytes": 1 << 40}
    samples = [
        {**sample, "at_ms": 60_000 * minute, "commit_ms": None if minute % 3 else 4.0} for minute in range(1440)
    ]
    with opened(chrome, cluster, "files/", **_PHONE) as page:
        page.page.route(
            "**/v1/history*", lambda route: route.fulfill(json={"interval_s": 60.0, "samples": samples})
        )
        page.page.evaluate("() => { location.hash = '#/cluster'; }")
        for title, said in (
            ("Written", "now 2.0 KiB/s, at most 2.0 KiB/s"),
            ("Changes of names", "now 1.5/s"),
            ("A commit takes", "now 4 ms, at most 4 ms"),
            ("Space used", "now 1.0 GiB"),
        ):
            figure = page.page.locator(f"[data-history='{title}']")
            figure.wait_for()
            assert said in figure.text_content()
        # A minute without a commit is a gap, not a duration of 0.
        assert page.page.locator("[data-history='A commit takes'] circle").count() == 480
        assert page.faults() == []
        width, window = page.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert width <= window, "it is wider than the window"
        page.page.unroute("**/v1/history*")


def test_page_offers_decisions_of_datanodes_to_administrators_tokens_alone(
    chrome: Browser, tmp_path: Path
) -> None:
    options = ["--authentication=token"]
    with LocalCluster(tmp_path, datanodes=1, port=0, coordinator_options=options) as cluster:
        with TokenAdministration(f"unix:{cluster.directory / 'coordinator'}") as administration:
            ann = administration.create("ann", 3600).token
            mine = administration.create(_ME, 3600, administrator=True).token
        for token, offered in ((ann, 0), (mine, 1)):
            with opened(chrome, cluster, "cluster", fresh=True) as page:
                page.expect("401")
                page.page.get_by_label("Token").fill(token)
                page.page.get_by_role("button", name="Enter").click()
                card = page.page.locator("[data-node]")
                card.wait_for()
                assert card.get_by_role("button", name="Maintenance").count() == offered
                if offered:
                    node = card.get_attribute("data-node")
                    card.get_by_role("button", name="Maintenance").click()
                    press(page, f"Put {node} into maintenance")
                    card.get_by_role("button", name="Take into service").wait_for()
