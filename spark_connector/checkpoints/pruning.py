"""Find what may be pruned: files that no retained batch needs, and orphans, which no batch can reach.

Never touched are the logs of sources, operator metadata and schemas, which are small, and whatever a batch after
the latest may be writing.
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
    """The bounds on what is kept: the latest batch always, and those before it until a bound is passed.

    `bytes` bounds what they need together. Files that nothing refers to are orphans when they are older than
    `orphan_age_ms`: what is younger may be on its way.
    """

    batches: int | None
    age_ms: int | None
    bytes: int | None
    now_ms: int
    orphan_age_ms: int


@dataclass(slots=True)
class Pruning:
    """The oldest batch that is kept; what goes with older ones; orphans."""

    oldest: int
    outdated: list[TreeEntry] = field(default_factory=list)
    orphans: list[TreeEntry] = field(default_factory=list)

    @property
    def entries(self) -> list[TreeEntry]:
        return self.outdated + self.orphans


def plan_pruning(inspection: Inspection, retention: Retention) -> Pruning:
    """Raises BadRequest where a retained batch is not good: what it needs cannot be known."""
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
    """The files that the retained batches need, and the oldest of the batches."""
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
                f"verify --batch {batch} says which changelog could not be looked into"
            )
        if needs.stops:
            raise BadRequest(f"{layout.root}: batch {batch} is not good: verify --batch {batch} says why")
        sizes, oldest = grown, batch
    return set(sizes), oldest


def _floor(files: StoreFiles, needed: set[str]) -> int:
    """The oldest version of a store that is needed. Later ones stay, for Spark to fall back on."""
    versions = (*files.changes.items(), *files.snapshots.items())
    return min((version.number for version, entry in versions if entry.path in needed), default=0)


@dataclass(slots=True)
class _Named:
    """Unique ids that commits name, or changelogs as what they descend from; others are failed attempts.

    All are, as long as one of the changelogs cannot be looked into.
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
    """SST files that no remaining snapshot names. None, as long as one of the snapshots cannot be read."""
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
    """Checksums of files that are no more."""
    lone = []
    for path, entry in layout.checksums.items():
        directory, name = posixpath.split(path)
        of = name.removesuffix(".crc")
        candidates = {posixpath.join(directory, of), posixpath.join(directory, of.removeprefix("."))}
        if not any(path_ in layout.by_path for path_ in candidates) and entry.modified_ms < old:
            lone.append(entry)
    return lone
