"""Copy the names of a tree in small steps, below an inode without a name. Data is shared, never copied.

The source does not change meanwhile: it is what a transaction itself sees, or what a snapshot or a pin shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec import structs

from peacefs.coordinator.metadata.model import ChunkRecord, Inode, InodeId, InodeKind, TreeSummary
from peacefs.coordinator.metadata.reader import Reader
from peacefs.coordinator.metadata.transaction import Transaction

from .paths import NamespacePath

#: Returns whether to copy an extended attribute of this name.
Keeps = Callable[[str], bool]
#: Returns the inode to write for the copy, given its directory and name. May raise.
Renewal = Callable[[NamespacePath, str, Inode], Inode]


class Unread(NamedTuple):
    """A directory whose names after `after` are still to be copied, and its copy."""

    path: NamespacePath
    source: InodeId
    copy: InodeId
    after: str = ""


@dataclass(frozen=True, slots=True)
class Growth:
    """The progress of a copy: what is still to be read, what was copied, and chunks that need more replicas."""

    unread: tuple[Unread, ...]
    copied: TreeSummary
    changed: list[ChunkRecord] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        return not self.unread


def begun(path: NamespacePath, source: InodeId, copy: InodeId) -> Growth:
    """Return the growth of a directory whose own copy exists."""
    return Growth((Unread(path, source, copy),), TreeSummary(1, 0, 0, 0))


def grow(
    tx: Transaction, source: Reader, growth: Growth, limit: int, renewed: Renewal, keeps: Keeps = lambda name: True
) -> Growth:
    """Copy about `limit` further names and references."""
    unread = list(growth.unread)
    directories, files, length, space = 0, 0, 0, 0
    changed: list[ChunkRecord] = []
    left = limit
    while unread and left > 0:
        here = unread.pop()
        children = source.children(here.source, here.after, left)
        if len(children) == left:
            unread.append(here._replace(after=children[-1][0]))
        for name, child in children:
            made = add_copy(tx, source, child, renewed(here.path, name, child), keeps)
            tx.add_entry(here.copy, name, made)
            if child.kind is InodeKind.DIRECTORY:
                unread.append(Unread(here.path.child(name), child.inode, made))
                directories += 1
            else:
                left -= copy_references(tx, source, child, made, changed)
                files += 1
                length += child.length
                space += child.length * child.replication
        left -= len(children) + 1
    before = growth.copied
    copied = TreeSummary(
        before.directories + directories,
        before.files + files,
        before.length + length,
        before.space_consumed + space,
    )
    return Growth(tuple(unread), copied, growth.changed + changed)


def add_copy(tx: Transaction, source: Reader, original: Inode, renewed: Inode, keeps: Keeps) -> InodeId:
    """Store an inode as a copy, with the extended attributes of the original that copies keep."""
    made = tx.add_inode(structs.replace(renewed, inode=0, attributes_tx=0))
    if original.attributes_tx:
        for name, value in source.attributes(original.inode).items():
            if keeps(name):
                tx.set_attribute(made, name, value)
    return made


def copy_references(
    tx: Transaction, source: Reader, file: Inode, made: InodeId, changed: list[ChunkRecord]
) -> int:
    """Let a file refer to the chunks of another, and return how many. Note those that need more replicas."""
    references = source.references(file.inode)
    for position, reference in enumerate(references):
        tx.add_reference(made, position, reference.chunk, reference.length)
        # After a snapshot was taken, the file may have been set to fewer replicas.
        if tx.set_chunk_replication(reference.chunk, file.replication):
            record = tx.chunk(reference.chunk)
            assert record is not None, f"chunk {reference.chunk} is referred to and does not exist"
            changed.append(record)
    return len(references)
