"""What the start of a query needs: files of the checkpoint, and the faults in them."""

from __future__ import annotations

from dataclasses import dataclass, field

from .findings import CheckpointFinding, Note
from .tree import TreeEntry


@dataclass(slots=True)
class Needs:
    """The files that a start needs, their faults, and what could not be verified.

    `partial` means that the start may need more files.
    """

    files: list[TreeEntry] = field(default_factory=list)
    findings: list[CheckpointFinding] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    partial: bool = False

    @property
    def stops(self) -> bool:
        return any(finding.stops for finding in self.findings)

    def add(self, other: Needs) -> None:
        self.files += other.files
        self.findings += other.findings
        self.notes += other.notes
        self.partial |= other.partial
