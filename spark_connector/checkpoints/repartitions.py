"""Recognise the batch by which Spark 4.2 and newer repartition the state of a stopped query.

Such a batch reads nothing: it has the offsets of the last committed batch and another number of partitions, by
which Spark recognises it. If it is planned but not done, every start fails until the repartition is repeated or
undone. The state that it has written by then would be taken for the state of the next batch with its number.
"""

from __future__ import annotations

import msgspec

from peacefs.protocol.errors import CheckpointDamaged

from .formats.logs import Offsets
from .inspection import Inspection
from .tree import TreeEntry


class RepartitionSummary(msgspec.Struct, frozen=True):
    """A batch that repartitions the state. One that is not `done` prevents every start."""

    batch: int
    partitions: int
    done: bool


def repartitions(inspection: Inspection) -> list[RepartitionSummary]:
    """Return the repartitions among the kept batches, oldest first."""
    found = ((batch, repartition_of(inspection, batch)) for batch in sorted(inspection.layout.offsets))
    done = inspection.layout.commits
    return [RepartitionSummary(batch, to, batch in done) for batch, to in found if to is not None]


def repartition_of(inspection: Inspection, batch: int) -> int | None:
    """Return the number of partitions that a batch repartitions the state to; None for an ordinary batch."""
    now, before = _offsets(inspection, batch), _offsets(inspection, batch - 1)
    if now is None or before is None or None in (now.shuffle_partitions, before.shuffle_partitions):
        return None
    return None if now.shuffle_partitions == before.shuffle_partitions else now.shuffle_partitions


def is_passed_over(inspection: Inspection, batch: int) -> bool:
    """Return whether `batch` failed but is recorded as done, because a repartition follows it.

    The repartition copies the offsets of the batch before. The failed batch's rows come again later.
    """
    if repartition_of(inspection, batch + 1) is None:
        return False
    now, after = _offsets(inspection, batch), _offsets(inspection, batch + 1)
    return now is not None and after is not None and now.sources != after.sources


def left_beyond(inspection: Inspection, batch: int) -> list[TreeEntry]:
    """Return the state and operator metadata that later batches have written, whether they are done or not."""
    layout, found = inspection.layout, list[TreeEntry]()
    for files in layout.stores.values():
        for versions in (files.changes, files.snapshots):
            found += [entry for version, entry in versions.items() if version.number > batch + 1]
    for operator in layout.operators.values():
        found += [entry for made, entry in operator.metadata.items() if made > batch]
    return sorted(found, key=lambda entry: entry.path)


def _offsets(inspection: Inspection, batch: int) -> Offsets | None:
    entry = inspection.layout.offsets.get(batch)
    try:
        return inspection.offsets(entry) if entry is not None else None
    except CheckpointDamaged:
        return None
