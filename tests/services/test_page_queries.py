"""Supervised queries on the web page, in a real Chromium: where they run, their logs, what programs report."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.browser import Browser, browser
from support.supervised_world import World, accounts_of_tests

from peacefs.client.control.addresses import parse_address
from peacefs.client.control.query_runs import CheckpointRuns
from peacefs.client.control.supervised_queries import SupervisedQueries
from peacefs.protocol.values.query_reports import (
    DataflowReport,
    EndReport,
    QueryReport,
    QueryState,
    UnitReport,
)
from peacefs.spark_connector.supervision.registration import supervise

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    with browser() as started:
        yield started


def test_page_shows_where_a_supervised_query_runs_and_its_log(chrome: Browser, tmp_path: Path) -> None:
    commands = f"""
        [commands.talk]
        program = "{sys.executable}"
        arguments = ["-c", "import time; print('<b>its first word</b>', flush=True); time.sleep(600)"]
        {accounts_of_tests()}
    """
    with World.running(tmp_path) as world:
        url = world.cluster.http_address
        with chrome.page(f"{url}/ui/#/queries") as page:
            page.see("No agent is alive")
            world.agent("north", commands)
            supervise(["talk"], coordinator=url, name="talker", checkpoint="/talker")
            page.page.locator("[data-query=talker] .badge.good").wait_for()
            page.see("On north, run ")
            page.expect("403")
            page.page.get_by_role("button", name="Look at its log").click()
            page.see("Access denied")
            page.page.get_by_label("User").fill(getpass.getuser())
            page.page.get_by_role("button", name="Use").click()
            page.page.get_by_role("button", name="Look at its log").click()
            page.see("<b>its first word</b>")
            _report_a_dataflow(url, "talker")
            for cells in (
                ["sums", "rows", "node-1", "3", "4.0 KiB", "12 ms", "1", "85 ms"],
                ["source", "rows", "1234", "100", "25.0 %"],
            ):
                row = page.page.get_by_role("row").filter(has_text=cells[-2]).filter(has_text=cells[-1])
                row.wait_for()
                assert row.get_by_role("cell").all_text_contents() == cells
            page.see("Late rows that were left out: 5 by sums.")
            assert page.faults() == []


def _report_a_dataflow(url: str, name: str) -> None:
    """Report as the program of a dataflow does that an agent has started."""
    with SupervisedQueries(url) as queries:
        location = queries.status(name).location
    figures = DataflowReport(
        [UnitReport("sums", ["rows"], "node-1", 3, 4096, 12.0, 0.5, 1, 85.0)],
        [EndReport("rows", 1234, 99.6, 0.25)],
        [EndReport("out", 77, 1.0)],
        {"sums": 5},
    )
    with CheckpointRuns(parse_address(url)) as runs:
        runs.report(QueryReport(location, runs.user, name, name, "north", 1, QueryState.RUNNING, dataflow=figures))
