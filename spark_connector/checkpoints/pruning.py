"""Find what may be pruned: files that no retained batch needs, and orphans, which no batch can reach.

Never prunes logs of sources, operator metadata and schemas, which are small, nor files of a batch under way.
"""

from __future__ import annotations

import contextlib
import posixpath
from dataclasses import dataclass, field

from peacefs.protocol.errors import BadRequest, CheckpointDamaged

from .formats.changelog import UnreadableChangelog
from .inspection import Inspection
from .judge import BatchVerifier
from .layout import CheckpointLayout, StoreFiles
from .start_modes import batch_before
from .tree import TreeEntry


@dataclass(frozen=True, slots=True)
class Retention:
    """Which batches to keep: always the latest, and earlier ones until a bound is exceeded.

    `bytes` bounds the total size of what the batches need. Unreferenced files count as orphans once they are older
    than `orphan_age_ms`: younger ones may belong to a write under way.
    """

    batches: int | None
    age_ms: int | None
    bytes: int | None
    now_ms: int
    orphan_age_ms: int


@dataclass(slots=True)
class Pruning:
    """The oldest batch that is kept, the files of older batches, and orphans."""

    oldest: int
    outdated: list[TreeEntry] = field(default_factory=list)
    orphans: list[TreeEntry] = field(default_factory=list)

    @property
    def entries(self) -> list[TreeEntry]:
        return self.outdated + self.orphans


def plan_pruning(inspection: Inspection, retention: Retention) -> Pruning:
    """Plan a pruning. Raises BadRequest if a retained batch is not good, since its needs are then unknown."""
    layout = inspection.layout
    judge = BatchVerifier(inspection)
    needed, oldest = _retained(judge, retention)
    latest = max(layout.commits)
    pruning = Pruning(oldest)
    before = batch_before(layout, oldest, judge.own_mode(oldest))
    floor = oldest if before is None else before
    pruning.outdated += [entry for batch, entry in layout.offsets.items() if batch < floor]
    pruning.outdated += [entry for batch, entry in layout.commits.items() if batch < oldest]
    named = _named(inspection)
    for files in layout.stores.values():
        oldest_version = _floor(files, needed)
        for versions in (files.changes, files.snapshots):
            for version, entry in versions.items():
                if version.number < oldest_version:
                    pruning.outdated.append(entry)
                elif version.number <= latest + 1 and version.uid is not None and not named.holds(version.uid):
                    pruning.orphans.append(entry)
    gone = {entry.path for entry in pruning.entries}
    old = retention.now_ms - retention.orphan_age_ms
    pruning.orphans += [entry for entry in layout.temporary if entry.modified_ms < old]
    for files in layout.stores.values():
        pruning.orphans += [entry for entry in _unreferenced(inspection, files, gone) if entry.modified_ms < old]
    pruning.orphans += _lone_checksums(layout, old)
    for group in (pruning.outdated, pruning.orphans):
        group += [checksum for entry in group for checksum in layout.checksum_files(layout.relative(entry))]
    return pruning


def _retained(judge: BatchVerifier, retention: Retention) -> tuple[set[str], int]:
    """Return the files that the retained batches need, and the oldest of these batches."""
    layout = judge.layout
    if not layout.commits:
        raise BadRequest(f"{layout.root}: no batch was done yet")
    always = judge.restart()
    if always.stops:
        raise BadRequest(f"{layout.root} is damaged: verify says how; nothing is pruned")
    sizes: dict[str, int] = {}
    oldest = max(layout.commits)
    for count, batch in enumerate(sorted(layout.commits, reverse=True), 1):
        needs = judge.batch(batch)
        grown = sizes | {entry.path: entry.length for entry in (*always.files, *needs.files)}
        if count > 1 and _is_beyond(retention, layout.commits[batch], count, sum(grown.values())):
            break
        if needs.partial:
            raise BadRequest(
                f"{layout.root}: what batch {batch} needs cannot be known; nothing is pruned: "
                f"verify --batch {batch} says which changelog could not be read"
            )
        if needs.stops:
            raise BadRequest(f"{layout.root}: batch {batch} is not good: verify --batch {batch} says why")
        sizes, oldest = grown, batch
    return set(sizes), oldest


def _floor(files: StoreFiles, needed: set[str]) -> int:
    """Return the oldest needed version of a store. Later versions stay, for Spark to fall back on."""
    versions = (*files.changes.items(), *files.snapshots.items())
    return min((version.number for version, entry in versions if entry.path in needed), default=0)


@dataclass(slots=True)
class _Named:
    """The unique ids that commits name, or that changelogs name as ancestors. Other ids are of failed attempts.

    `everything`: a changelog could not be parsed, so every id counts as named.
    """

    uids: set[str] = field(default_factory=set)
    everything: bool = False

    def holds(self, uid: str) -> bool:
        return self.everything or uid in self.uids


def _named(inspection: Inspection) -> _Named:
    named = _Named()
    for entry in inspection.layout.commits.values():
        with contextlib.suppress(CheckpointDamaged):
            of_operators = inspection.commit(entry).state_unique_ids or {}
            named.uids |= {uid for stores in of_operators.values() for ids in stores for uid in ids}
    for files in inspection.layout.stores.values():
        for version, entry in files.changes.items():
            if version.uid not in named.uids:
                continue
            with contextlib.suppress(CheckpointDamaged):
                changelog = inspection.changes(entry)
                if isinstance(changelog, UnreadableChangelog):
                    named.everything = True
                else:
                    named.uids |= {step.checkpoint_unique_id for step in changelog.lineage}
    return named


def _is_beyond(retention: Retention, commit: TreeEntry, count: int, size: int) -> bool:
    return (
        (retention.batches is not None and count > retention.batches)
        or (retention.age_ms is not None and retention.now_ms - commit.modified_ms > retention.age_ms)
        or (retention.bytes is not None and size > retention.bytes)
    )


def _unreferenced(inspection: Inspection, files: StoreFiles, gone: set[str]) -> list[TreeEntry]:
    """Return SST files that no remaining snapshot names; none if a snapshot cannot be read."""
    named: set[str] = set()
    for entry in files.snapshots.values():
        if entry.path in gone or not entry.name.endswith(".zip"):
            continue
        try:
            named |= {member.dfs_sst_file_name for member in inspection.snapshot(entry).sst_files}
        except CheckpointDamaged:
            return []
    return [entry for name, entry in files.ssts.items() if name not in named]


def _lone_checksums(layout: CheckpointLayout, old: int) -> list[TreeEntry]:
    """Return checksum files whose data file is gone."""
    lone = []
    for path, entry in layout.checksums.items():
        directory, name = posixpath.split(path)
        of = name.removesuffix(".crc")
        candidates = {posixpath.join(directory, of), posixpath.join(directory, of.removeprefix("."))}
        if not any(path_ in layout.by_path for path_ in candidates) and entry.modified_ms < old:
            lone.append(entry)
    return lone
