"""Measure the metadata store: durable creates, status look-ups, pages of a listing.

    python benchmarks/metadata.py [directory] [--files 100000] [--submitters 16]

Creates are completions of one-chunk files, each acknowledged after its commit is on the disk of `directory`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from peacefs.coordinator.limits import list_page_entries, reclaim_entries_per_commit
from peacefs.coordinator.metadata.group_commit import GroupCommit
from peacefs.coordinator.metadata.reader import Reader
from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.coordinator.metadata.writer import Writer
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.coordinator.namespace.reclaim import reclaim_step
from peacefs.coordinator.operations.durability.commits import Commits
from peacefs.protocol.messages import Receipt, WrittenChunk
from peacefs.protocol.new_file import NewFile

T = TypeVar("T")
NOW_MS = 1_700_000_000_000
DIRECTORY = "/checkpoints/query/state/0/17"


def completion(number: int) -> Callable[[Transaction], namespace.Publication]:
    receipts = [Receipt(f"node-{(number + hop) % 9}", b"") for hop in range(3)]
    file = NewFile(
        path=f"{DIRECTORY}/{number:08}.delta",
        user="spark",
        replication=3,
        block_bytes=1 << 26,
        request_id=f"{random.getrandbits(128):032x}",
    )
    chunks = [WrittenChunk(number + 1, number + 1, 1000, 7, receipts)]
    return lambda tx: namespace.complete_file(tx, file, chunks, NOW_MS)


async def measure_creates(group: GroupCommit, first: int, seconds: float, submitters: int) -> int:
    """Run submitters that each wait for one create before the next. Return the number after the last file's."""
    commits, numbers = Commits(group), iter(range(first, 1 << 40))
    end = time.perf_counter() + seconds
    waits: list[float] = []

    async def submit() -> None:
        while time.perf_counter() < end:
            number = next(numbers)
            asked = time.perf_counter()
            await commits(completion(number))
            waits.append(time.perf_counter() - asked)

    commits_before, cpu_before, begun = group.commits, time.process_time(), time.perf_counter()
    await asyncio.gather(*(submit() for _ in range(submitters)))
    elapsed, cpu = time.perf_counter() - begun, time.process_time() - cpu_before
    waits.sort()
    print(
        f"{submitters:3} submitters: {len(waits) / elapsed:7.0f} durable creates/s, "
        f"{len(waits) / (group.commits - commits_before):5.1f} a commit, "
        f"p50 {waits[len(waits) // 2] * 1e3:.2f} ms, p99 {waits[len(waits) * 99 // 100] * 1e3:.2f} ms, "
        f"{cpu / len(waits) * 1e6:.0f} us of CPU each"
    )
    return next(numbers)


async def fill(commits: Commits, first: int, last: int) -> None:
    begun = time.perf_counter()
    for at in range(first, last, 4096):
        await asyncio.gather(*(commits(completion(number)) for number in range(at, min(at + 4096, last))))
    if last > first:
        print(f"filling up to {last} files, pipelined: {(last - first) / (time.perf_counter() - begun):.0f}/s")


def measure_reads(reader: Reader, files: int) -> None:
    randomly = random.Random(1)
    paths = [parse_path(f"{DIRECTORY}/{randomly.randrange(files):08}.delta") for _ in range(20_000)]
    begun = time.perf_counter()
    for path in paths:
        namespace.status(reader, path)
    elapsed = (time.perf_counter() - begun) / len(paths) * 1e6
    components = len(paths[0].components)
    print(f"status: {elapsed:.1f} us, {elapsed / components:.1f} us for each of {components} components")
    directory, after, pages = parse_path(DIRECTORY), None, 0
    begun = time.perf_counter()
    while True:
        page = namespace.list_page(reader, directory, after)
        pages += 1
        if not page.remaining:
            break
        after = page.entries[-1].name
    elapsed = time.perf_counter() - begun
    print(f"list: {elapsed / pages * 1e3:.2f} ms a page of {list_page_entries}, {elapsed:.2f} s for {files} files")


async def measure_delete(commits: Commits, files: int) -> None:
    begun = time.perf_counter()
    top = parse_path("/checkpoints")
    assert (await commits(lambda tx: namespace.delete(tx, top, True, NOW_MS))).done
    print(f"delete of the tree: {(time.perf_counter() - begun) * 1e3:.2f} ms")
    steps, more = 0, True
    begun = time.perf_counter()
    while more:
        _, more = await commits(lambda tx: reclaim_step(tx, reclaim_entries_per_commit))
        steps += 1
    elapsed = time.perf_counter() - begun
    print(f"reclaim: {elapsed / steps * 1e3:.2f} ms a step, {files / elapsed:.0f} files/s")


async def measure(store: Path, arguments: argparse.Namespace) -> None:
    metadata = open_store(store, owner="root")
    metadata.begin_epoch()
    loop = asyncio.get_running_loop()
    writer = Writer(loop.call_soon_threadsafe)
    group = GroupCommit(metadata, lambda fault: os._exit(1), run=writer, soon=loop.call_soon)
    commits = Commits(group)
    number = await measure_creates(group, 0, arguments.seconds, 1)
    number = await measure_creates(group, number, arguments.seconds, arguments.submitters)
    files = max(number, arguments.files)
    await fill(commits, number, files)
    measure_reads(metadata.reader(), files)
    metadata.catch_up()
    size = (await asyncio.to_thread(store.stat)).st_size
    print(f"{size / files:.0f} bytes of metadata a file")
    await measure_delete(commits, files)
    group.close()
    metadata.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", default=".", type=Path)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--submitters", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=3.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as scratch:
        asyncio.run(measure(Path(scratch) / "metadata.sqlite", arguments))


if __name__ == "__main__":
    main()
