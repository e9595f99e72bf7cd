"""Loads many files into the metadata of a coordinator that does not run yet, without its services.

`load` creates `/existing/0000/00 ... /existing/nnnn/99`, or the same below another directory: a hundred files a
directory, each as a completion creates it. `load_empty` creates many more in the same time: empty files, a
thousand a directory, `/scale/000/00/000 ...`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from peacefs.coordinator.metadata.model import ROOT, ROOT_GROUP, Inode, InodeId, InodeKind
from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.coordinator.namespace import operations as namespace
from peacefs.protocol.ids import Numbering
from peacefs.protocol.messages import Receipt, Replica, WrittenChunk
from peacefs.protocol.new_file import NewFile

FILES_PER_DIRECTORY = 100
OWNER = "bench"
#: The directory of `load_empty`.
EMPTY_FILES_PER_DIRECTORY = 1000
_DIRECTORIES_PER_DIRECTORY = 100
_FILES_PER_COMMIT = 1000
_DIRECTORIES_PER_COMMIT = 50
_NOW_MS = 1_800_000_000_000


def existing(number: int, top: str = "/existing") -> str:
    """Return the path of a file that `load` made."""
    return f"{top}/{number // FILES_PER_DIRECTORY:04}/{number % FILES_PER_DIRECTORY:02}"


def load(store: Path, files: int, holders: tuple[str, ...], top: str = "/existing") -> list[Replica]:
    """Make files of one chunk of 1 KiB on `holders`, or empty files if there are none. Return the replicas."""
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


def empty_directory(number: int) -> str:
    """Return the path of a directory of `load_empty`. Its files are numbered from 1,000 times `number`."""
    return f"/scale/{number // _DIRECTORIES_PER_DIRECTORY:03}/{number % _DIRECTORIES_PER_DIRECTORY:02}"


def empty_file(number: int) -> str:
    """Return the path of a file of `load_empty`."""
    directory, name = divmod(number, EMPTY_FILES_PER_DIRECTORY)
    return f"{empty_directory(directory)}/{name:03}"


def load_empty(store: Path, files: int, owner: str, *, is_flat: bool = False) -> None:
    """Create empty files of `owner` by writing rows directly, without path lookups and the retry cache.

    If `is_flat`, all of them are in `/scale`.
    """
    assert files % EMPTY_FILES_PER_DIRECTORY == 0, f"{files} files are no whole thousands"
    metadata = open_store(store, owner=owner)
    metadata.begin_epoch()
    parents: dict[str, InodeId] = {}

    def make(tx: Transaction, parent: InodeId, name: str, kind: InodeKind) -> InodeId:
        is_file = kind is InodeKind.FILE
        made = Inode(
            inode=0,
            kind=kind,
            permission=0o644 if is_file else 0o755,
            owner=owner,
            group=ROOT_GROUP,
            modified_ms=_NOW_MS,
            accessed_ms=_NOW_MS if is_file else 0,
            length=0,
            block_bytes=1 << 26 if is_file else 0,
            replication=3 if is_file else 0,
        )
        inode = tx.add_inode(made)
        tx.add_entry(parent, name, inode)
        return inode

    def fill(tx: Transaction, number: int) -> None:
        above, parent = "", ROOT
        for name in ("scale",) if is_flat else empty_directory(number).split("/")[1:]:
            above = f"{above}/{name}"
            if above not in parents:
                parents[above] = make(tx, parent, name, InodeKind.DIRECTORY)
            parent = parents[above]
        for file in range(EMPTY_FILES_PER_DIRECTORY):
            name = f"{number:04}{file:03}" if is_flat else f"{file:03}"
            make(tx, parent, name, InodeKind.FILE)

    numbers = iter(range(files // EMPTY_FILES_PER_DIRECTORY))
    while batch := list(itertools.islice(numbers, _DIRECTORIES_PER_COMMIT)):
        for outcome in metadata.commit([partial(fill, number=number) for number in batch]):
            assert outcome.error is None, outcome.error
    metadata.close()
