"""A namespace of many files for a coordinator that does not run yet, loaded past all services.

`/existing/0000/00 ... /existing/nnnn/99`, or the same below another directory: a hundred files a directory.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.coordinator.namespace import operations as namespace
from peacefs.protocol.ids import Numbering
from peacefs.protocol.messages import Receipt, Replica, WrittenChunk
from peacefs.protocol.new_file import NewFile

FILES_PER_DIRECTORY = 100
OWNER = "bench"
_FILES_PER_COMMIT = 1000
_NOW_MS = 1_800_000_000_000


def existing(number: int, top: str = "/existing") -> str:
    """The path of a file that `load` made."""
    return f"{top}/{number // FILES_PER_DIRECTORY:04}/{number % FILES_PER_DIRECTORY:02}"


def load(store: Path, files: int, holders: tuple[str, ...], top: str = "/existing") -> list[Replica]:
    """Makes files of one chunk of 1 KiB that `holders` have; empty files where there are none. The replicas."""
    metadata = open_store(store, owner=OWNER)
    numbering = Numbering(metadata.begin_epoch())
    receipts = [Receipt(node, b"") for node in holders]
    replicas: list[Replica] = []

    def completions() -> Iterator[tuple[NewFile, list[WrittenChunk]]]:
        for number in range(files):
            chunks = []
            if receipts:
                chunks = [WrittenChunk(numbering.next(), numbering.next(), 1024, 0, receipts)]
                replicas.append(Replica(chunks[0].chunk, chunks[0].version, 1024))
            file = NewFile(
                path=existing(number, top),
                user=OWNER,
                replication=max(1, len(holders)),
                block_bytes=1 << 26,
                request_id=f"load-{number}",
            )
            yield file, chunks

    waiting = completions()
    while batch := list(itertools.islice(waiting, _FILES_PER_COMMIT)):
        requests = [
            lambda tx, file=file, chunks=chunks: namespace.complete_file(tx, file, chunks, _NOW_MS)
            for file, chunks in batch
        ]
        for outcome in metadata.commit(requests):
            assert outcome.error is None, outcome.error
    # A coordinator has forgotten what nobody asks for any more.
    metadata.commit([lambda tx: tx.forget_answers(_NOW_MS + 1, files)])
    metadata.close()
    return replicas
