"""A process that commits until it is killed, and prints what was acknowledged."""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial
from pathlib import Path

from peacefs.coordinator.metadata.group_commit import GroupCommit, metadata_tend_interval_s
from peacefs.coordinator.metadata.model import RenameMode
from peacefs.coordinator.metadata.sqlite import file_image
from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.coordinator.metadata.writer import Writer
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.coordinator.operations.durability.commits import Commits
from peacefs.protocol.ids import first_of_epoch
from peacefs.protocol.messages import Receipt, WrittenChunk
from peacefs.protocol.new_file import NewFile


async def work(commits: Commits, epoch: int, worker: int) -> None:
    """Create, rename and delete in turn. Print acknowledged facts, one per line: + exists, - does not exist."""
    for number in range(1 << 30):
        temporary, final = f"/{epoch}/{worker}/.{number}.tmp", f"/{epoch}/{worker}/{number}"
        chunk = WrittenChunk(first_of_epoch(epoch) | worker << 30 | number, 1, 100, 7, [Receipt("node", b"")])
        file = NewFile(path=temporary, user="ann", replication=1, block_bytes=1 << 26, request_id=temporary)
        await commits(
            lambda tx, file=file, chunk=chunk: namespace.complete_file(tx, file, [chunk], 1),  # type: ignore[misc]
        )
        source, target = parse_path(temporary), parse_path(final)
        await commits(partial(namespace.rename, source=source, target=target, mode=RenameMode.STRICT, now_ms=1))
        os.write(1, f"+{final}\n-{temporary}\n".encode())
        if number >= 3:
            old = f"/{epoch}/{worker}/{number - 3}"
            await commits(
                lambda tx, old=old: namespace.delete(tx, parse_path(old), False, 1),  # type: ignore[misc]
            )
            os.write(1, f"-{old}\n".encode())


async def serve(store: Path) -> None:
    """Commit as the coordinator does, with a thread for the log and a process for the image."""
    # Fork before the work, so that this process takes part.
    file_image.image_entries_behind_max = 20  # type: ignore[misc]
    metadata = open_store(store, owner="root")
    epoch = metadata.begin_epoch()
    loop = asyncio.get_running_loop()
    writer = Writer(loop.call_soon_threadsafe)
    group = GroupCommit(metadata, lambda fault: os._exit(3), run=writer, soon=loop.call_soon)
    commits = Commits(group)
    workers = [asyncio.create_task(work(commits, epoch, worker)) for worker in range(4)]
    while not any(worker.done() for worker in workers):
        await asyncio.sleep(metadata_tend_interval_s / 10)
        group.tend(idle=True)
    await asyncio.gather(*workers)


def main() -> None:
    asyncio.run(serve(Path(sys.argv[1])))


if __name__ == "__main__":
    main()
