"""Plan a rollback: which files to remove so that an earlier batch is the latest, and which batches then differ.

The plan removes what later batches wrote: commits, versions of state, operator metadata, log entries of file
sources, and offsets except those of the next batch. The next batch keeps its offsets, so Spark repeats it with the
same rows from any source. Batches after that one are planned anew and may get other rows: a file source lists its
files again and fills batches by its options, which the checkpoint does not record. Other sources may have changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from peacefs.protocol.errors import CheckpointDamaged

from .formats.logs import Offsets
from .inspection import Inspection
from .layout import OFFSETS
from .repartitions import left_beyond, repartition_of
from .source_logs import SourceLogs
from .tree import TreeEntry


@dataclass(slots=True)
class Cut:
    """The files to remove, with their checksum files, as paths relative to the root.

    `plan` is the batch that is repeated as planned. `anew` lists batches that were planned or done and will be
    planned anew; `reasons` says why each of them may get other rows.
    """

    remove: list[str]
    plan: int | None
    anew: list[int] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)


def plan_cut(inspection: Inspection, batch: int) -> Cut:
    """Plan a rollback to `batch`. Raises CheckpointDamaged if its offsets cannot be read."""
    layout, sources = inspection.layout, SourceLogs(inspection)
    offsets = inspection.offsets(layout.offsets[batch])
    plan = _plan(inspection, sources, batch, offsets)
    kept = batch if plan is None else batch + 1
    entries = [entry for made, entry in layout.offsets.items() if made > kept]
    entries += [entry for made, entry in layout.commits.items() if made > batch]
    entries += left_beyond(inspection, batch)
    end = offsets if plan is None else plan
    cut = Cut([], None if plan is None else kept)
    cut.anew = sorted(made for made in layout.offsets if made > kept)
    repartitions = [made for made in cut.anew if repartition_of(inspection, made) is not None]
    if cut.anew == repartitions:
        cut.anew = []  # These batches had no rows.
    elif repartitions:
        cut.reasons.append(f"batch {repartitions[0]} repartitioned the state, and is not repeated")
    if not sources.up_to(end).stops:
        entries += sources.beyond(end)
    else:
        cut.reasons.append(
            "the log of a file source has lost what it was then, so that the next batch holds all files"
        )
    if batch + 1 in layout.offsets and plan is None and batch + 1 not in repartitions:
        cut.reasons.append(f"{OFFSETS}/{batch + 1}, or what it names, cannot be read")
    if cut.anew:
        cut.reasons.append("Spark asks the source again how much each of them takes")
    cut.remove = _with_checksums(inspection, entries)
    return cut


def _plan(inspection: Inspection, sources: SourceLogs, batch: int, before: Offsets) -> Offsets | None:
    """Return the offsets of the next batch, or None.

    None if they or what they refer to cannot be read, or if the batch is a repartition.
    """
    entry = inspection.layout.offsets.get(batch + 1)
    if entry is None or repartition_of(inspection, batch + 1) is not None:
        return None
    try:
        offsets = inspection.offsets(entry)
    except CheckpointDamaged:
        return None
    whole = not sources.entries(batch + 1, offsets, before).stops and not sources.up_to(offsets).stops
    return offsets if whole else None


def _with_checksums(inspection: Inspection, entries: list[TreeEntry]) -> list[str]:
    layout = inspection.layout
    paths = [layout.relative(entry) for entry in entries]
    return paths + [layout.relative(checksum) for path in paths for checksum in layout.checksum_files(path)]
