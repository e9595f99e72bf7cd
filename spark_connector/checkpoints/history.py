"""Tell how the latest batches of a checkpoint went, from the times and sizes of its files; none is read."""

from __future__ import annotations

from typing import Final

import msgspec

from .layout import CheckpointLayout
from .tree import TreeEntry

# So many of a checkpoint's latest batches are shown, with their times and files.
checkpoint_batches_shown_max: Final = 100


class BatchFile(msgspec.Struct, frozen=True):
    """A file that a batch wrote, by its path relative to the root."""

    path: str
    bytes: int


class BatchHistory(msgspec.Struct, frozen=True):
    """A batch. Milliseconds since 1970; `committed_ms` is None for one that is under way, or was cut short."""

    batch: int
    planned_ms: int
    committed_ms: int | None
    #: The bytes of changes and snapshots of state that it left, in all stores.
    state_bytes: int
    files: list[BatchFile]


def latest_batches(layout: CheckpointLayout, count_max: int = checkpoint_batches_shown_max) -> list[BatchHistory]:
    """Return the latest batches, the earliest of them first."""
    shown = sorted(layout.offsets)[-count_max:]
    of_state: dict[int, list[TreeEntry]] = {batch: [] for batch in shown}
    for store in layout.stores.values():
        for version, entry in (*store.changes.items(), *store.snapshots.items()):
            # A version is the state after the batch before it.
            if version.number - 1 in of_state:
                of_state[version.number - 1].append(entry)
    return [_history(layout, batch, of_state[batch]) for batch in shown]


def _history(layout: CheckpointLayout, batch: int, of_state: list[TreeEntry]) -> BatchHistory:
    offsets, commit = layout.offsets[batch], layout.commits.get(batch)
    of_sources = [entry for log in layout.sources.values() if (entry := log.find(batch)) is not None]
    files = [offsets, *([] if commit is None else [commit]), *of_sources, *of_state]
    return BatchHistory(
        batch=batch,
        planned_ms=offsets.modified_ms,
        committed_ms=None if commit is None else commit.modified_ms,
        state_bytes=sum(entry.length for entry in of_state),
        files=sorted(
            (BatchFile(layout.relative(entry), entry.length) for entry in files), key=lambda each: each.path
        ),
    )
