"""Find the files that a version of a store's state is loaded from: a snapshot, and each changelog since.

Spark loads the version's newest ancestor among the snapshots. If it is damaged, 4.1 and newer try an older one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from peacefs.protocol.errors import CheckpointDamaged

from .findings import CheckpointFinding, Fault, Note, damage
from .formats.changelog import UnreadableChangelog
from .inspection import Inspection
from .layout import LOG_GAP_MAX, StateVersion, StoreFiles, StoreKey
from .tree import TreeEntry

_RECORDS_SUFFIX = ".snapshot"


@dataclass(slots=True)
class StateChain:
    """The files that a version is loaded from, including SSTs. `snapshot` is None for changelogs alone.

    `partial`: a changelog with an unreadable lineage hides earlier files.
    """

    snapshot: StateVersion | None
    files: list[TreeEntry] = field(default_factory=list)
    findings: list[CheckpointFinding] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    partial: bool = False
    #: Spark loads the chain and meets the damage only when it reads; it does not fall back on another snapshot.
    loads: bool = False


class ChainFinder:
    """Find the chains of one store's versions, for `StateNeeds`. Files are read through the `Inspection`."""

    def __init__(
        self, inspection: Inspection, key: StoreKey, files: StoreFiles, *, falls_back: bool = True
    ) -> None:
        self._inspection = inspection
        self._key = key
        self._files = files
        self._falls_back = falls_back

    def find(self, version: StateVersion) -> StateChain:
        """Return the chain that Spark would load, with its faults and those of chains that it tries first."""
        failed: list[StateChain] = []
        for snapshot, ancestry in self._candidates(version):
            chain = self._examine(snapshot, ancestry)
            chain.partial = snapshot is None and version.uid is not None and bool(chain.notes)
            if not chain.findings or chain.loads or not self._falls_back:
                chain.findings += [replace(finding, stops=False) for old in failed for finding in old.findings]
                return chain
            failed.append(chain)
        first = failed[0]
        seen = dict.fromkeys(finding for chain in failed for finding in chain.findings)
        # Changelogs before the snapshot that Spark takes may be deleted already: their absence explains nothing.
        first.findings = [
            finding for finding in seen if finding in first.findings or finding.fault is Fault.DAMAGED
        ]
        return first

    def _candidates(self, version: StateVersion) -> Iterator[tuple[StateVersion | None, list[StateVersion]]]:
        """Yield snapshots, newest first, each with the versions that lead from it to `version`.

        The last pair has None as its snapshot if no snapshot exists, or if changelogs go back to the beginning.
        """
        found = False
        changes: list[StateVersion] = []
        uids: dict[int, str] = {}
        step, missing = version, 0
        while step.number > 0:
            if step in self._files.snapshots:
                found = True
                yield step, list(changes)
            changes.append(step)
            missing += step not in self._files.changes
            lineage = self._lineage(step)
            if missing > LOG_GAP_MAX or (lineage is None and step.uid is not None):
                break
            uids |= lineage or {}
            step = StateVersion(step.number - 1, uids.get(step.number - 1))
        if not found or step.number == 0:
            yield None, changes

    def _lineage(self, version: StateVersion) -> dict[int, str] | None:
        """Return the unique ids of earlier versions, from the changelog; None if they cannot be known."""
        entry = self._files.changes.get(version)
        if version.uid is None or entry is None:
            return None if entry is None else {}
        try:
            changelog = self._inspection.changes(entry)
        except CheckpointDamaged:
            return None
        if isinstance(changelog, UnreadableChangelog):
            return None
        return {step.version: step.checkpoint_unique_id for step in changelog.lineage}

    def _examine(self, snapshot: StateVersion | None, changes: list[StateVersion]) -> StateChain:
        chain = StateChain(snapshot)
        missing = [version for version in changes if version not in self._files.changes]
        wanted = f"state version {changes[0].number} cannot be reached without it" if changes else ""
        if snapshot is None and not self._files.snapshots:
            wanted += ": there is no snapshot either"
        for version in sorted(missing):
            name = f"{self._key.directory}/{version.shown}.changelog"
            chain.findings.append(CheckpointFinding(name, Fault.MISSING, wanted))
        for version in changes:
            if (entry := self._files.changes.get(version)) is not None:
                self._read(chain, entry)
        if snapshot is not None:
            self._examine_snapshot(chain, self._files.snapshots[snapshot])
        return chain

    def _read(self, chain: StateChain, entry: TreeEntry) -> None:
        chain.files.append(entry)
        path = self._inspection.layout.relative(entry)
        try:
            contents = self._inspection.changes(entry)
        except CheckpointDamaged as error:
            chain.findings.append(damage(path, error))
            return
        if isinstance(contents, UnreadableChangelog):
            chain.notes.append(Note(path, contents.reason))

    def _examine_snapshot(self, chain: StateChain, entry: TreeEntry) -> None:
        if entry.name.endswith(_RECORDS_SUFFIX):
            self._read(chain, entry)
            return
        chain.files.append(entry)
        path = self._inspection.layout.relative(entry)
        try:
            snapshot = self._inspection.snapshot(entry)
        except CheckpointDamaged as error:
            chain.findings.append(damage(path, error))
            return
        faults: list[CheckpointFinding] = []
        for member in snapshot.sst_files:
            sst = self._files.ssts.get(member.dfs_sst_file_name)
            name = f"{self._key.directory}/SSTs/{member.dfs_sst_file_name}"
            if sst is None:
                chain.findings.append(
                    CheckpointFinding(name, Fault.MISSING, f"the snapshot {entry.name} needs it")
                )
                continue
            chain.files.append(sst)
            if sst.length != member.size_bytes:
                reason = f"{sst.length} bytes long; the snapshot {entry.name} says {member.size_bytes}"
                chain.findings.append(CheckpointFinding(name, Fault.DAMAGED, reason))
                continue
            try:
                checked = self._inspection.sst(sst)
            except CheckpointDamaged as error:
                chain.findings.append(damage(name, error))
                continue
            if checked.fault:
                faults.append(CheckpointFinding(name, Fault.DAMAGED, checked.fault))
            if checked.unverified:
                chain.notes.append(Note(name, checked.unverified))
        chain.loads = bool(faults) and not chain.findings
        chain.findings += faults
