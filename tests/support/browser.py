"""A real Chromium that opens the web page and records every error; driven by Playwright's core."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

#: Starting a browser takes long on a busy machine. Only a broken one takes this long.
TIMEOUT_MS = 120_000
_FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


def chromium() -> str:
    """Return the path of Chromium. Skip the test if Chromium or its driver is missing."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("Chromium is not here: on Debian `apt-get install chromium`, or run `make setup` again")
    pytest.importorskip("playwright.sync_api", reason="Playwright is not here: run `make setup` again")
    return found


class Browser:
    """One browser. Each page keeps its errors."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser
        #: Open a fresh page for each test, in one profile: a profile of its own costs a second of processor time.
        self._kept: dict[str, Any] = {}

    @contextmanager
    def page(self, url: str, *, fresh: bool = False, **context: Any) -> Iterator[Page]:
        """Yield a page at an address, with empty storage. Fail the test if the page has reported errors.

        With `fresh`, and after a page that failed, the page gets a profile of its own.
        """
        options = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"} | context
        look = repr(sorted(options.items()))
        tab = None if fresh else self._kept.pop(look, None)
        if tab is None:
            profile = self._browser.new_context(**options)
            profile.set_default_timeout(TIMEOUT_MS)
            tab = profile.new_page()
        page, is_well = Page(tab, url), False
        try:
            tab.goto(url)
            yield page
            assert page.complaints == []
            is_well = not fresh
        finally:
            page.let_go()
            if is_well:
                tab.evaluate("sessionStorage.clear(); localStorage.clear()")
                tab.context.clear_cookies()
                tab.goto("about:blank")
                self._kept[look] = tab
            else:
                tab.context.close()


class Page:
    """A page and its errors: errors on the console, exceptions, dialogs, requests to other hosts."""

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self.complaints: list[str] = []
        #: Hosts, with ports, to which requests may go.
        self.hosts = {urlsplit(url).netloc}
        self._expected: list[str] = []
        self._listeners = {
            "console": self._said,
            "pageerror": self._failed,
            "dialog": self._asked,
            "request": self._requested,
        }
        for event, listener in self._listeners.items():
            page.on(event, listener)

    def let_go(self) -> None:
        """Ignore further errors."""
        for event, listener in self._listeners.items():
            self.page.remove_listener(event, listener)

    def expect(self, text: str) -> None:
        """Expect an error with this text on the console: a browser logs one for each refused request."""
        self._expected.append(text)

    def _said(self, message: Any) -> None:
        if message.type == "error" and not any(text in message.text for text in self._expected):
            self.complaints.append(f"console: {message.text}")

    def _failed(self, error: Any) -> None:
        self.complaints.append(f"exception: {error}")

    def _asked(self, dialog: Any) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _requested(self, request: Any) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob") and parts.netloc not in self.hosts:
            self.complaints.append(f"a request to another host: {request.url}")

    def see(self, text: str) -> Any:
        """Wait until this text is visible; return its element."""
        place = self.page.get_by_text(text).first
        place.wait_for()
        return place

    def faults(self) -> list[str]:
        """Return the serious faults that axe-core finds in the page."""
        if not self.page.evaluate("'axe' in window"):
            from axe_playwright_python.sync_playwright import Axe

            self.page.evaluate(Axe().axe_script)
        found = self.page.evaluate("axe.run({resultTypes: ['violations']}).then(({violations}) => violations)")
        return [
            f"{each['id']}: {node['html'][:200]} {node['failureSummary']}"
            for each in found
            if each["impact"] in ("serious", "critical")
            for node in each["nodes"]
        ]


@contextmanager
def browser() -> Iterator[Browser]:
    """Start a browser."""
    where = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=where, args=list(_FLAGS), timeout=TIMEOUT_MS)
        try:
            yield Browser(started)
        finally:
            started.close()
