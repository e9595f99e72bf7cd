"""Summarise checkpoints, and find the checkpoints in a tree."""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from peacefs.protocol.errors import AccessDenied, BadRequest, CheckpointDamaged, FileNotFound
from peacefs.protocol.limits import checkpoint_entries_max
from peacefs.protocol.values.temporary_names import wanted_name

from .ancestry import Ancestry, ancestry_of
from .families import CheckpointFamily, KnownCheckpoint, families
from .formats.operators import StatefulOperator
from .inspection import Inspection
from .layout import (
    COMMITS,
    DEFAULT_STORE,
    CheckpointLayout,
    StateVersion,
    StoreFiles,
    StoreKey,
    arrange,
    is_root,
)
from .repartitions import repartitions
from .tree import FileTree, TreeEntry, files_below
from .unit_checkpoints import has_units


class StoreSummary(msgspec.Struct, frozen=True):
    """One store of a partition, with its versions, newest last. `bytes` counts all its files."""

    operator: int
    partition: int
    store: str
    snapshots: list[str]
    changes: list[str]
    bytes: int
    modified_ms: int


class OperatorSummary(msgspec.Struct, frozen=True):
    """A stateful operator. `name` is None if its metadata is missing or damaged."""

    operator: int
    name: str | None
    partitions: int
    stores: list[str]
    files: int
    bytes: int


class SourceSummary(msgspec.Struct, frozen=True):
    """A source, and the offset at which the latest planned batch ends, as the source writes it."""

    source: int
    offset: str | None


class CheckpointSummary(msgspec.Struct, frozen=True):
    """A summary of one checkpoint. Times are milliseconds since 1970.

    `format` is 2 if state versions have unique ids, None without state. `planned` and `committed` are the latest
    batches, `oldest` is the oldest retained batch. `durations_ms` is, for each of the last committed batches, the
    time between writing its offsets and writing its commit.
    """

    root: str
    query: str | None
    planned: int | None
    committed: int | None
    oldest: int | None
    format: int | None
    watermark_ms: int | None
    durations_ms: list[int]
    operators: list[OperatorSummary]
    sources: list[SourceSummary]
    files: int
    bytes: int
    temporary_files: int
    foreign_files: int
    created_ms: int
    modified_ms: int
    #: The id of its directory, which a rename keeps; empty if it is not known.
    identity: str
    ancestry: Ancestry


_DURATIONS = 10


def read_layout(tree: FileTree, root: str) -> CheckpointLayout:
    """Return the layout of the checkpoint at `root`. Raises FileNotFound; BadRequest if it is no checkpoint."""
    layout = arrange(root, files_below(tree, root))
    if not layout.is_checkpoint:
        raise BadRequest(f"{root} is no checkpoint of Spark's: there are no offsets of batches in it")
    return layout


def find_roots(tree: FileTree, top: str, *, partial: bool = False) -> Iterator[str]:
    """Yield the roots of Spark's checkpoints. Parameters and errors are those of `find_all`."""
    return (root for root, of_units in find_all(tree, top, partial=partial) if not of_units)


def find_all(tree: FileTree, top: str, *, partial: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield the root of each checkpoint at or below `top`, with True if it is a dataflow's (checkpoints of units).

    With `partial`, skips directories below `top` that may not be listed. Skips directories with the name of an
    unfinished copy. Raises FileNotFound, AccessDenied; BadRequest if the tree is too large.
    """
    pending, seen = [top], 0
    while pending:
        directory = pending.pop()
        try:
            entries = tree.entries(directory)
            of_query = is_root(entry.name for entry in entries)
            of_units = not of_query and has_units(tree, entries)
        except FileNotFound:
            if directory == top:
                raise
            continue
        except AccessDenied:
            if directory == top or not partial:
                raise
            continue
        seen += len(entries)
        if seen > checkpoint_entries_max:
            raise BadRequest(f"{top} holds more than {checkpoint_entries_max} files and directories")
        if of_query or of_units:
            yield directory, of_units
        else:
            named = (entry for entry in reversed(entries) if wanted_name(entry.name) is None)
            pending += [entry.path for entry in named if entry.is_directory]


def summarise(inspection: Inspection) -> CheckpointSummary:
    """Summarise a checkpoint from a few small files. Damaged parts are left out."""
    layout = inspection.layout
    planned, committed = max(layout.offsets, default=None), max(layout.commits, default=None)
    watermark, sources = None, list[SourceSummary]()
    # `verify` reports the damage.
    with contextlib.suppress(CheckpointDamaged):
        if planned is not None:
            offsets = inspection.offsets(layout.offsets[planned])
            watermark = offsets.watermark_ms
            sources = [SourceSummary(number, text) for number, text in enumerate(offsets.sources)]
    return CheckpointSummary(
        root=layout.root,
        query=_query(inspection),
        planned=planned,
        committed=committed,
        oldest=min(layout.commits, default=None),
        format=state_format(layout),
        watermark_ms=watermark,
        durations_ms=_durations(layout),
        operators=[_operator(inspection, number) for number in sorted(layout.operators)],
        sources=sources,
        files=len(layout.by_path),
        bytes=layout.bytes,
        temporary_files=len(layout.temporary),
        foreign_files=len(layout.foreign),
        created_ms=min((entry.modified_ms for entry in layout.by_path.values()), default=0),
        modified_ms=layout.modified_ms,
        identity=inspection.tree.identity(layout.root),
        ancestry=ancestry_of(inspection.tree, layout.root),
    )


def find_families(tree: FileTree, tops: Iterable[str]) -> list[CheckpointFamily]:
    """Group the checkpoints at and below directories into families, by their ancestry.

    Reads a few files of each checkpoint, and no directories of state. Skips checkpoints that may not be read.
    Raises FileNotFound and AccessDenied for one of `tops`, BadRequest if a tree is too large.
    """
    roots = dict.fromkeys(root for top in tops for root in find_roots(tree, top, partial=True))
    found = []
    for root in roots:
        # A checkpoint may vanish between the listing and this look.
        with contextlib.suppress(FileNotFound, AccessDenied):
            found.append(_known(tree, root))
    return families(found)


def latest_of(tree: FileTree, root: str) -> tuple[str | None, int | None]:
    """Return a checkpoint's query id and its latest committed batch, each None if it cannot be read."""
    layout = arrange(root, (*_files(tree, root), *_files(tree, posixpath.join(root, COMMITS))))
    return _query(Inspection(tree, layout)), max(layout.commits, default=None)


def _known(tree: FileTree, root: str) -> KnownCheckpoint:
    """Read what a family needs to know of a checkpoint. Raises FileNotFound."""
    query, committed = latest_of(tree, root)
    return KnownCheckpoint(root, tree.identity(root), query, committed, ancestry_of(tree, root))


def _files(tree: FileTree, directory: str) -> list[TreeEntry]:
    try:
        return [entry for entry in tree.entries(directory) if not entry.is_directory]
    except FileNotFound:
        return []


def _query(inspection: Inspection) -> str | None:
    """Return the query's id; None where it is missing or damaged."""
    metadata = inspection.layout.metadata
    try:
        return None if metadata is None else inspection.query_metadata(metadata).id
    except CheckpointDamaged:
        return None


def describe(tree: FileTree, root: str) -> dict[str, Any]:
    """Return a checkpoint's summary for machines, plus `repartitions` and `state`: its stores by partition.

    Raises FileNotFound; BadRequest if it is no checkpoint.
    """
    layout = read_layout(tree, root)
    inspection = Inspection(tree, layout)
    summary: dict[str, Any] = msgspec.to_builtins(summarise(inspection))
    more = {"repartitions": repartitions(inspection), "state": summarise_stores(layout)}
    return {**summary, **msgspec.to_builtins(more)}


def summarise_stores(layout: CheckpointLayout) -> list[StoreSummary]:
    return [_store(key, layout.stores[key]) for key in sorted(layout.stores)]


def _store(key: StoreKey, files: StoreFiles) -> StoreSummary:
    entries = [*files.changes.values(), *files.snapshots.values(), *files.ssts.values()]
    return StoreSummary(
        operator=key.operator,
        partition=key.partition,
        store=key.store,
        snapshots=_shown(files.snapshots),
        changes=_shown(files.changes),
        bytes=sum(entry.length for entry in entries),
        modified_ms=max((entry.modified_ms for entry in entries), default=0),
    )


def _shown(versions: Iterable[StateVersion]) -> list[str]:
    return [version.shown for version in sorted(versions, key=lambda each: (each.number, each.uid or ""))]


def state_format(layout: CheckpointLayout) -> int | None:
    """Return 2 if state versions have unique ids, else 1; None without state."""
    versions = [version for files in layout.stores.values() for version in (*files.changes, *files.snapshots)]
    if not versions:
        return None
    return 2 if any(version.uid is not None for version in versions) else 1


def _durations(layout: CheckpointLayout) -> list[int]:
    both = sorted(layout.offsets.keys() & layout.commits.keys())[-_DURATIONS:]
    return [max(0, layout.commits[batch].modified_ms - layout.offsets[batch].modified_ms) for batch in both]


def _operator(inspection: Inspection, number: int) -> OperatorSummary:
    layout = inspection.layout
    described: StatefulOperator | None = None
    metadata = layout.operators[number].metadata
    with contextlib.suppress(CheckpointDamaged):  # `verify` reports the damage
        described = inspection.operator(metadata[max(metadata)]) if metadata else None
    there = [key for key in layout.stores if key.operator == number]
    stores = [info.store_name for info in described.state_store_info] if described else []
    of_operator = [entry for path, entry in layout.by_path.items() if path.startswith(f"state/{number}/")]
    return OperatorSummary(
        operator=number,
        name=described.operator_info.operator_name if described else None,
        partitions=len({key.partition for key in there}),
        stores=stores or sorted({key.store for key in there}) or [DEFAULT_STORE],
        files=len(of_operator),
        bytes=sum(entry.length for entry in of_operator),
    )
