"""Locate a checkpoint's replicas by host and by rack, from the chunk map."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import Final

from peacefs.coordinator.cluster.core import Cluster
from peacefs.coordinator.metadata.model import InodeId, InodeKind
from peacefs.coordinator.metadata.reader import Reader
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.coordinator.namespace.resolution import find_existing
from peacefs.coordinator.supervision.locality import Holdings
from peacefs.protocol.errors import PathError

# Maximum number of a checkpoint's files that are examined, in total and per turn of the event loop.
checkpoint_locality_entries_max: Final = 20_000
checkpoint_locality_entries_per_turn: Final = 200


def find_locality(reader: Reader, cluster: Cluster, checkpoint: str) -> Generator[None, None, Holdings]:
    """Locate the replicas of a tree, in turns. Return nothing for a missing tree: a query's first run creates it.

    A large tree is judged by its first `checkpoint_locality_entries_max` files.
    """
    by_host: Counter[str] = Counter()
    by_rack: Counter[str] = Counter()
    nodes = cluster.members.alive()
    rack_of = {node.registration.data_host: node.rack for node in nodes}
    pending = _top(reader, checkpoint)
    seen = 0
    while pending and seen < checkpoint_locality_entries_max:
        directory, after = pending.pop()
        page = reader.children(directory, after, checkpoint_locality_entries_per_turn)
        if len(page) == checkpoint_locality_entries_per_turn:
            pending.append((directory, page[-1][0]))
        for _name, inode in page:
            if inode.kind is InodeKind.DIRECTORY:
                pending.append((inode.inode, ""))
                continue
            for reference in reader.references(inode.inode):
                holders = cluster.locations(reference.chunk)
                by_host.update(dict.fromkeys({node.registration.data_host for node in holders}, reference.length))
                by_rack.update(dict.fromkeys({node.rack for node in holders}, reference.length))
        seen += len(page)
        yield
    return Holdings(by_host, by_rack, rack_of)


def _top(reader: Reader, checkpoint: str) -> list[tuple[InodeId, str]]:
    try:
        return [(find_existing(reader, parse_path(checkpoint)).inode, "")]
    except PathError:
        return []
