"""Show the latest batches of a checkpoint from the times and sizes of its files, without reading the files."""

from __future__ import annotations

from typing import Final

import msgspec

from .layout import CheckpointLayout
from .tree import TreeEntry

# Number of latest batches that are shown, with their times and files.
checkpoint_batches_shown_max: Final = 100


class BatchFile(msgspec.Struct, frozen=True):
    """A file that a batch wrote. `path` is relative to the root."""

    path: str
    bytes: int


class BatchHistory(msgspec.Struct, frozen=True):
    """One batch. Times are milliseconds since 1970; `committed_ms` is None without a commit."""

    batch: int
    planned_ms: int
    committed_ms: int | None
    #: Bytes of the changes and snapshots of state that the batch wrote, in all stores.
    state_bytes: int
    files: list[BatchFile]


def latest_batches(layout: CheckpointLayout, count_max: int = checkpoint_batches_shown_max) -> list[BatchHistory]:
    """Return the latest batches, earliest first."""
    shown = sorted(layout.offsets)[-count_max:]
    of_state: dict[int, list[TreeEntry]] = {batch: [] for batch in shown}
    for store in layout.stores.values():
        for version, entry in (*store.changes.items(), *store.snapshots.items()):
            # Version N of the state is the state after batch N - 1.
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
