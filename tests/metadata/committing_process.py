"""A process that commits until it is killed, and says on stdout what was acknowledged."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from peacefs.coordinator.metadata.group_commit import GroupCommit
from peacefs.coordinator.metadata.model import RenameMode
from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.protocol.ids import first_of_epoch
from peacefs.protocol.messages import Receipt, WrittenChunk
from peacefs.protocol.new_file import NewFile


def work(commits: GroupCommit, epoch: int, worker: int) -> None:
    """Creates, renames and deletes in turn. A line is what must be so from then on: + is there, - is not."""
    for number in range(1 << 30):
        temporary, final = f"/{epoch}/{worker}/.{number}.tmp", f"/{epoch}/{worker}/{number}"
        chunk = WrittenChunk(first_of_epoch(epoch) | worker << 30 | number, 1, 100, 7, [Receipt("node", b"")])
        file = NewFile(path=temporary, user="ann", replication=1, block_bytes=1 << 26, request_id=temporary)
        commits.submit(
            lambda tx, file=file, chunk=chunk: namespace.complete_file(tx, file, [chunk], 1)  # type: ignore[misc]
        ).result()
        source, target = parse_path(temporary), parse_path(final)
        commits.submit(
            lambda tx, source=source, target=target: namespace.rename(tx, source, target, RenameMode.STRICT, 1)  # type: ignore[misc]
        ).result()
        os.write(1, f"+{final}\n-{temporary}\n".encode())
        if number >= 3:
            old = f"/{epoch}/{worker}/{number - 3}"
            commits.submit(
                lambda tx, old=old: namespace.delete(tx, parse_path(old), False, 1)  # type: ignore[misc]
            ).result()
            os.write(1, f"-{old}\n".encode())


def main() -> None:
    metadata = open_store(Path(sys.argv[1]), owner="root")
    epoch = metadata.begin_epoch()
    commits = GroupCommit(metadata, lambda fault: os._exit(3))
    threads = [threading.Thread(target=work, args=(commits, epoch, worker), daemon=True) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
