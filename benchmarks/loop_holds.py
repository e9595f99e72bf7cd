"""Measure for how long operations on a large tree hold the coordinator's event loop.

    python -m benchmarks.loop_holds [DIRECTORY] [--files N] [--flat] [--all]

The tree has empty files, a thousand a directory (`namespaces.load_empty`), or all in one directory with `--flat`.
The operations run as in the service, over a store in files, without sockets. Each runs alone, and the processor
time of every callback of the loop is measured. A row has the seconds of the operation, the longest callback, and
the number of callbacks that took longer than 2 and 10 ms. With `--all` trees are also copied, restored and
reclaimed, which takes minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from peacefs.coordinator.core import CoordinatorCore
from peacefs.coordinator.metadata.epochs import begin_epoch
from peacefs.coordinator.metadata.group_commit import GroupCommit, metadata_tend_interval_s
from peacefs.coordinator.metadata.model import RenameMode
from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.coordinator.metadata.store import Metadata
from peacefs.coordinator.metadata.writer import Writer
from peacefs.coordinator.namespace.permissions import Callers
from peacefs.coordinator.operations.context import OperationContext
from peacefs.coordinator.operations.durability.commits import Commits
from peacefs.coordinator.operations.durability.durable_answers import DurableAnswers
from peacefs.coordinator.operations.files import Files
from peacefs.protocol.tokens import Signer

from .namespaces import load_empty

T = TypeVar("T")
_ROOT, _USER = "root", "ann"


class _Holds:
    """Times the callbacks of the loop."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        run = asyncio.events.Handle._run
        clock, seconds = time.thread_time, self.seconds

        def timed(handle: asyncio.Handle) -> None:
            begun = clock()
            run(handle)
            seconds.append(clock() - begun)

        asyncio.events.Handle._run = timed  # type: ignore[method-assign, assignment]

    async def measure(self, name: str, operation: Awaitable[object]) -> None:
        await asyncio.sleep(0.2)
        gc.collect()
        await asyncio.sleep(0)
        self.seconds.clear()
        begun = time.perf_counter()
        try:
            await asyncio.ensure_future(operation)
        except Exception as error:
            name = f"{name} ({type(error).__name__})"
        elapsed = time.perf_counter() - begun
        longest = max(self.seconds) * 1000
        above = [sum(each > limit for each in self.seconds) for limit in (0.002, 0.01)]
        print(f"{name:<42} {elapsed:7.2f} s  longest {longest:8.2f} ms  {above[0]:6} > 2 ms {above[1]:5} > 10 ms")


def _files(metadata: Metadata, commits: GroupCommit) -> Files:
    commit = Commits(commits)
    now_s = time.monotonic()
    core = CoordinatorCore(now_s, begin_epoch(metadata, now_s), Random(1))
    context = OperationContext(
        metadata.reader(),
        commit,
        core,
        Signer(b"secret"),
        None,  # type: ignore[arg-type]
        DurableAnswers(metadata.rows, commit),
        callers=Callers(_ROOT),
    )
    return Files(context)


async def _tend(commits: GroupCommit) -> None:
    while True:
        await asyncio.sleep(metadata_tend_interval_s)
        commits.tend(idle=True)


async def _operations(files: Files, holds: _Holds, top: str, *, is_all: bool) -> None:
    names, limiting, snapshots = files.names, files.limiting, files.snapshots
    run: Callable[..., Any] = holds.measure
    await names.set_owner(top, _ROOT, _USER, None)
    for directory in ("/limited", "/open"):
        await names.mkdirs(directory, _ROOT, 0o777)
    await limiting.set_quota("/limited", _ROOT, 10_000_000, None)
    await run("content summary", names.content_summary(top, _USER))
    await run("temporary files", files.temporary_files.collect(1.0))
    await run("list a page", names.list_page(top, _USER, None, 1000))
    await run("set a quota", limiting.set_quota(top, _ROOT, 10_000_000, None))
    await run("remove it", limiting.set_quota(top, _ROOT, -1, None))
    await run("rename into a quota", names.rename(top, "/limited/a", _ROOT, RenameMode.STRICT))
    await run("rename out of it", names.rename("/limited/a", "/open/b", _ROOT, RenameMode.STRICT))
    await snapshots.allow("/open/b", _ROOT)
    await run("take a snapshot", snapshots.create("/open/b", _ROOT, "s"))
    await run("difference to itself", snapshots.diff("/open/b", _ROOT, "s", ""))
    if is_all:
        await run("copy out of the snapshot", files.copying.copy("/open/b/.snapshot/s", "/limited/copy", _ROOT))
        await run("restore", snapshots.restore("/open/b", _ROOT, "s"))
        await run("difference to all new", snapshots.diff("/open/b", _ROOT, "s", ""))
        await run("reclaim what was there", names.reclaim())
        await run("delete below a quota", names.delete("/limited/copy", True, _ROOT))
        await run("reclaim it", names.reclaim())
    await run("drop the snapshot", snapshots.delete("/open/b", _ROOT, "s"))
    await run("purge it", names.reclaim())
    await run("rename into a quota again", names.rename("/open/b", "/limited/b", _ROOT, RenameMode.STRICT))
    await run("delete below a quota", names.delete("/limited/b", True, _ROOT))
    if is_all:
        await run("reclaim it", names.reclaim())


async def _measure(store: Path, top: str, *, is_all: bool) -> None:
    metadata = open_store(store, owner=_ROOT)
    loop = asyncio.get_running_loop()
    writer = Writer(loop.call_soon_threadsafe)
    commits = GroupCommit(metadata, lambda fault: os._exit(1), run=writer, soon=loop.call_soon)
    files = _files(metadata, commits)
    tending = asyncio.create_task(_tend(commits))
    holds = _Holds()
    await _operations(files, holds, top, is_all=is_all)
    tending.cancel()
    commits.close()
    metadata.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", default=".", type=Path)
    parser.add_argument("--files", type=int, default=200_000)
    parser.add_argument("--flat", action="store_true", help="all files in one directory")
    parser.add_argument("--all", action="store_true", help="also copy, restore and reclaim")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as scratch:
        store = Path(scratch) / "metadata.sqlite"
        load_empty(store, arguments.files, _ROOT, is_flat=arguments.flat)
        asyncio.run(_measure(store, "/scale", is_all=arguments.all))


if __name__ == "__main__":
    main()
