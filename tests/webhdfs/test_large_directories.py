"""The cost of a listing, and how long it blocks the coordinator's event loop, for any size of directory.

A directory may have a million names. The tests count function calls and encoded statuses, which do not depend on
the machine or its load.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace
from support.immediate_commit import CommitsAtOnce, durable_at_once
from support.new_core import new_core
from support.no_links import NoLinks

from peacefs.coordinator.api.webhdfs import WebHdfs
from peacefs.coordinator.limits import list_page_entries, list_remaining_max
from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.metadata.model import ROOT, Inode, InodeKind
from peacefs.coordinator.metadata.sqlite.store import store_in_memory
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.coordinator.operations.context import OperationContext
from peacefs.coordinator.operations.files import Files
from peacefs.protocol.ids import Numbering
from peacefs.protocol.tokens import Signer

#: Both sizes exceed the maximum for `remainingEntries`, so that counting costs the same in both.
SMALL, LARGE = list_remaining_max + 3 * list_page_entries, 4 * list_remaining_max
_FILE = Inode(0, InodeKind.FILE, 0o644, "hdfs", "hdfs", 1, 1, 100, 1 << 26, 3)


class Turn(NamedTuple):
    """The work between two moments at which another task could run."""

    calls: int
    cpu_s: float
    answered: int


class Names:
    """A namespace with one directory per size, /d<entries>, behind WebHDFS without a socket."""

    def __init__(self, *sizes: int) -> None:
        self.metadata = store_in_memory()
        numbering = Numbering(self.metadata.begin_epoch())
        for size in sizes:
            run_now(self.metadata, lambda tx, size=size: self._fill(tx, size))
        self.calls = 0

        context = OperationContext(
            self.metadata.reader(),
            CommitsAtOnce(self.metadata),
            new_core(numbering=numbering),
            Signer(b"secret"),
            NoLinks(),
            durable_at_once(self.metadata),
        )

        async def elsewhere(scope: Any, receive: Any, send: Any) -> None:
            raise AssertionError("it is no WebHDFS")

        self.app = WebHdfs(Files(context), elsewhere)

    @staticmethod
    def _fill(tx: Transaction, size: int) -> None:
        directory = tx.add_inode(replace(_FILE, kind=InodeKind.DIRECTORY, permission=0o755, length=0))
        tx.add_entry(ROOT, f"d{size}", directory)
        for number in range(size):
            tx.add_entry(directory, f"name-{number:07}", tx.add_inode(_FILE))

    def count(self, _frame: Any, event: str, _of: Any) -> None:
        """Count calls, for `sys.setprofile`."""
        self.calls += event in ("call", "c_call")

    async def ask(self, path: str, query: str, sent: Callable[[bytes], None] = lambda piece: None) -> Any:
        body = bytearray()

        async def receive() -> dict[str, Any]:
            await asyncio.Event().wait()
            raise AssertionError("the client stays")

        async def send(event: Any) -> None:
            if piece := event.get("body"):
                sent(piece)
                body.extend(piece)

        scope = {
            "type": "http",
            "method": "GET",
            "path": f"/webhdfs/v1{path}",
            "raw_path": f"/webhdfs/v1{path}".encode(),
            "query_string": query.encode(),
            "headers": [],
        }
        await self.app(scope, receive, send)
        return json.loads(body)

    @asynccontextmanager
    async def others(self) -> AsyncIterator[list[Turn]]:
        """Let another task request one status after another. Yield a list of the work between its requests."""
        turns: list[Turn] = []
        over = asyncio.Event()

        async def keep_asking() -> None:
            answered = 0
            while not over.is_set():
                before, cpu_s = self.calls, time.thread_time()
                await asyncio.sleep(0)
                turns.append(Turn(self.calls - before, time.thread_time() - cpu_s, answered))
                assert (await self.ask("/", "op=GETFILESTATUS"))["FileStatus"]["type"] == "DIRECTORY"
                answered += 1

        asking = asyncio.create_task(keep_asking())
        try:
            yield turns
        finally:
            over.set()
            await asking


@pytest.fixture(scope="module")
def names() -> Iterator[Names]:
    made = Names(SMALL, LARGE)
    sys.setprofile(made.count)
    yield made
    sys.setprofile(None)


def run(story: Awaitable[Any]) -> Any:
    async def told() -> Any:
        return await story

    return asyncio.run(told())


async def list_whole(names: Names, size: int) -> tuple[list[str], list[int], list[Turn]]:
    """Return the names, the number of statuses in each piece of the answer, and the turns of another task."""
    pieces: list[int] = []
    async with names.others() as turns:
        listed = await names.ask(
            f"/d{size}", "op=LISTSTATUS", lambda piece: pieces.append(piece.count(b'"pathSuffix"'))
        )
    return [status["pathSuffix"] for status in listed["FileStatuses"]["FileStatus"]], pieces, turns


@pytest.mark.evidence("loop-is-free")
def test_a_whole_listing_comes_in_pages_between_which_others_are_answered(names: Names) -> None:
    small, large = (run(list_whole(names, size)) for size in (SMALL, LARGE))
    for size, (found, pieces, turns) in ((SMALL, small), (LARGE, large)):
        assert found == [f"name-{number:07}" for number in range(size)]
        assert max(pieces) == list_page_entries
        pages = size // list_page_entries
        assert turns[-1].answered >= pages - 1, "somebody was answered between any two pages"
    most_small, most_large = (max(turn.calls for turn in turns) for _, _, turns in (small, large))
    assert most_large <= 1.05 * most_small, "the larger a directory, the longer a page holds the event loop"
    # On a busy machine a single turn may take any time, but the median is stable.
    median_small, median_large = (
        statistics.median(turn.cpu_s for turn in turns if turn.calls > most_small / 2)
        for _, _, turns in (small, large)
    )
    assert median_large < 2 * median_small


async def page_cost(names: Names, size: int, after: int) -> int:
    query = f"op=LISTSTATUS_BATCH&startAfter=name-{after - 1:07}" if after else "op=LISTSTATUS_BATCH"
    before = names.calls
    page = (await names.ask(f"/d{size}", query))["DirectoryListing"]
    cost = names.calls - before
    statuses = page["partialListing"]["FileStatuses"]["FileStatus"]
    assert [status["pathSuffix"] for status in statuses] == [
        f"name-{number:07}" for number in range(after, after + list_page_entries)
    ]
    assert page["remainingEntries"] == min(list_remaining_max, size - after - list_page_entries)
    return cost


@pytest.mark.evidence("loop-is-free")
def test_a_page_costs_the_same_wherever_it_is_and_whatever_follows(names: Names) -> None:
    """The remaining entries are counted, up to a limit."""
    usual = run(page_cost(names, SMALL, 0))
    assert usual > 0
    for after in range(0, LARGE - list_page_entries, LARGE // 7):
        assert run(page_cost(names, LARGE, after)) <= 1.05 * usual


def test_a_status_costs_the_same_beside_any_number_of_names(names: Names) -> None:
    async def cost(size: int) -> int:
        before = names.calls
        path = f"/d{size}/name-{size // 2:07}"
        assert (await names.ask(path, "op=GETFILESTATUS"))["FileStatus"]["length"] == 100
        return names.calls - before

    assert run(cost(LARGE)) <= 1.05 * run(cost(SMALL))
