"""Find files whose removal lets a query start again from a broken checkpoint.

Each candidate is judged on the checkpoint without its files, so only repairs that help are reported. The first one
that helps is returned. Candidates are tried in this order, from harmless to most destructive:

    files that Spark writes anew or does without: schemas, unread entries of logs, snapshots, and before Spark 4.0
    the query's id
    the plan of an unfinished repartition of the state, and what it has written
    the commit of the last batch, which the sink then receives again unchanged
    the plan of a batch that was not done, and the state that it has written
    both
"""

from __future__ import annotations

from collections.abc import Iterator

from peacefs.protocol.errors import CheckpointDamaged

from .findings import CheckpointFinding, CheckpointRepair, Fault
from .inspection import Inspection
from .judge import BatchVerifier
from .layout import COMMITS, METADATA, OFFSETS, CheckpointLayout, arrange
from .repartitions import is_passed_over, left_beyond, repartition_of
from .source_logs import SourceLogs
from .start_modes import batch_before, own_mode
from .tree import TreeEntry

_SCHEMA = "/_metadata/schema"
_SNAPSHOTS = (".zip", ".snapshot")
_ANOTHER_ID = (
    "Spark 3.5 gives the query another id: to a sink that knows it by its id (Delta Lake's txnAppId) a batch that "
    "is repeated is a new one"
)


def find_repair(inspection: Inspection) -> CheckpointRepair | None:
    """Return the repair. None if a query would start, no repair helps, or a file needs a newer Spark."""
    judge = BatchVerifier(inspection)
    stops = [finding for finding in judge.restart().findings if finding.stops]
    if not stops or any(finding.fault is Fault.TOO_NEW for finding in stops):
        return None
    for candidate in _candidates(inspection, judge.restart().findings):
        if not candidate.remove:
            continue
        reduced = without(inspection.layout, candidate.remove)
        trial = BatchVerifier(inspection.of(reduced))
        if reduced.is_checkpoint and not trial.restart().stops:
            return CheckpointRepair(
                candidate.remove,
                candidate.reason,
                trial.goes_on_with(trial.own_mode()),
                repeats=candidate.repeats,
                plans_anew=candidate.plans_anew,
            )
    return None


def without(layout: CheckpointLayout, paths: list[str]) -> CheckpointLayout:
    """Return the layout without some files and their checksum files."""
    gone = {*paths, *(layout.relative(entry) for path in paths for entry in layout.checksum_files(path))}
    reduced = arrange(layout.root, [entry for path, entry in layout.by_path.items() if path not in gone])
    reduced.named = layout.named
    return reduced


def _candidates(inspection: Inspection, findings: list[CheckpointFinding]) -> Iterator[CheckpointRepair]:
    layout = inspection.layout
    planned, committed = max(layout.offsets, default=-1), max(layout.commits, default=-1)
    free, reasons = _free(inspection, [finding for finding in findings if finding.fault is Fault.DAMAGED])
    yield CheckpointRepair(free, "; ".join(reasons), 0)
    if committed < 0:
        plan = _plan(inspection, planned, None) if planned == 0 else []
        yield CheckpointRepair(
            _joined(free, plan), "no batch was done: the query begins anew", 0, plans_anew=planned
        )
        return
    commit = [f"{COMMITS}/{committed}"]
    repeated = f"batch {committed} is repeated with the rows that it had"
    if planned == committed:
        yield CheckpointRepair(_joined(free, commit), repeated, 0, repeats=committed)
        return
    if not _readable(inspection, committed):
        return
    if repartition_of(inspection, planned) is not None:
        yield _undone_repartition(inspection, planned, free)
        return
    is_next = committed == batch_before(layout, planned, own_mode(layout, planned))
    plan = _plan(inspection, planned, committed) if is_next else []
    anew = f"batch {planned}, which was not done, is planned anew"
    if plan:
        yield CheckpointRepair(_joined(free, plan), anew, 0, plans_anew=planned)
    yield CheckpointRepair(_joined(free, commit), "Spark does without it", 0)
    if plan:
        both = f"{repeated}, and {anew}"
        yield CheckpointRepair(_joined(free, plan, commit), both, 0, repeats=committed, plans_anew=planned)


def _free(inspection: Inspection, damaged: list[CheckpointFinding]) -> tuple[list[str], list[str]]:
    """Return the damaged files that can be removed without loss, and the reasons."""
    unread = {inspection.layout.relative(entry) for entry in _unread(inspection)}
    found: dict[str, str] = {}
    for finding in damaged:
        if finding.path == METADATA and finding.noticed:
            found[finding.path] = _ANOTHER_ID
        elif finding.path.endswith(_SCHEMA):
            found[finding.path] = "Spark writes the schema anew, without comparing it with the query's"
        elif finding.path in unread:
            found[finding.path] = "no batch has read this entry of the source's log: Spark lists its files again"
        elif finding.path.endswith(_SNAPSHOTS):
            found[finding.path] = "Spark takes the snapshot before it, and the changes since"
        elif finding.path.endswith(".sst"):
            for snapshot in _snapshots_with(inspection, finding.path):
                found[snapshot] = "Spark takes the snapshot before it, and the changes since"
    return sorted(found), list(dict.fromkeys(found.values()))


def _unread(inspection: Inspection) -> list[TreeEntry]:
    """Return entries of sources' logs that no planned batch has read."""
    planned = max(inspection.layout.offsets, default=None)
    return _beyond(inspection, planned) if planned is not None else []


def _undone_repartition(inspection: Inspection, planned: int, free: list[str]) -> CheckpointRepair:
    """Undo a repartition that was not finished. Its plan is removed last, as in `_plan`."""
    passed_over = is_passed_over(inspection, planned - 1)
    last = planned - 2 if passed_over else planned - 1
    remove = [inspection.layout.relative(entry) for entry in left_beyond(inspection, last)]
    remove += [f"{COMMITS}/{batch}" for batch in sorted(inspection.layout.commits) if batch > last]
    reason = f"the repartition by batch {planned} is undone; to have it, give it again instead"
    if passed_over:
        reason += f"; batch {planned - 1}, which it passed over, is repeated as it was planned"
    return CheckpointRepair(
        _joined(free, remove, [f"{OFFSETS}/{planned}"]), reason, 0, repeats=planned - 1 if passed_over else None
    )


def _plan(inspection: Inspection, planned: int, committed: int | None) -> list[str]:
    """Return the files of an unfinished batch: first what was written for it, then its plan.

    The state that it has written would be taken for the state of the next batch with its number. The plan goes
    last, so that a killed repair can be repeated.
    """
    left = left_beyond(inspection, -1 if committed is None else committed)
    state = [inspection.layout.relative(entry) for entry in left]
    return [*_entries_beyond(inspection, committed), *state, f"{OFFSETS}/{planned}"]


def _entries_beyond(inspection: Inspection, batch: int | None) -> list[str]:
    """Return the entries of sources' logs after a batch; all entries if `batch` is None."""
    if batch is None:
        logs = inspection.layout.sources.values()
        entries = [entry for log in logs for files in (log.deltas, log.compacts) for entry in files.values()]
    else:
        entries = _beyond(inspection, batch)
    return [inspection.layout.relative(entry) for entry in entries]


def _beyond(inspection: Inspection, batch: int) -> list[TreeEntry]:
    entry = inspection.layout.offsets.get(batch)
    try:
        return SourceLogs(inspection).beyond(inspection.offsets(entry)) if entry is not None else []
    except CheckpointDamaged:
        return []


def _readable(inspection: Inspection, batch: int) -> bool:
    """Return whether the offsets of a batch can be read, so that it can be repeated unchanged."""
    entry = inspection.layout.offsets.get(batch)
    try:
        return entry is not None and inspection.offsets(entry) is not None
    except CheckpointDamaged:
        return False


def _snapshots_with(inspection: Inspection, path: str) -> Iterator[str]:
    """Yield the snapshots that name an SST file."""
    layout = inspection.layout
    name = path.rpartition("/")[2]
    for files in layout.stores.values():
        if name not in files.ssts:
            continue
        for entry in files.snapshots.values():
            try:
                members = inspection.snapshot(entry).sst_files if entry.name.endswith(".zip") else []
            except CheckpointDamaged:
                continue
            if any(member.dfs_sst_file_name == name for member in members):
                yield layout.relative(entry)


def _joined(*parts: list[str]) -> list[str]:
    return list(dict.fromkeys(path for part in parts for path in part))
