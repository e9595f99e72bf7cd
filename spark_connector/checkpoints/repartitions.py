"""Recognise the batch by which Spark 4.2 and newer repartition the state of a query that is stopped.

Such a batch reads nothing: its offsets are those of the last batch done, with another number of partitions. Spark
knows it by that number alone. One that is planned and not done makes every start fail, until the repartition is
given again or undone; and what it has written of state by then would be taken for that of the batch that has its
number next.
"""

from __future__ import annotations

from peacefs.protocol.errors import CheckpointDamaged

from .inspection import Inspection
from .tree import TreeEntry


def repartition_of(inspection: Inspection, batch: int) -> int | None:
    """Return the number of partitions that a batch repartitions the state to; None for an ordinary batch."""
    now, before = (_partitions(inspection, number) for number in (batch, batch - 1))
    return now if now is not None and before is not None and now != before else None


def left_beyond(inspection: Inspection, batch: int) -> list[TreeEntry]:
    """Return the state, and the metadata of operators, that later batches have written, done or not."""
    layout, found = inspection.layout, list[TreeEntry]()
    for files in layout.stores.values():
        for versions in (files.changes, files.snapshots):
            found += [entry for version, entry in versions.items() if version.number > batch + 1]
    for operator in layout.operators.values():
        found += [entry for made, entry in operator.metadata.items() if made > batch]
    return sorted(found, key=lambda entry: entry.path)


def _partitions(inspection: Inspection, batch: int) -> int | None:
    entry = inspection.layout.offsets.get(batch)
    try:
        return inspection.offsets(entry).shuffle_partitions if entry is not None else None
    except CheckpointDamaged:
        return None
