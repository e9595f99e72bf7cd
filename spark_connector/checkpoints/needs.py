"""The needs of a query's start: files of the checkpoint, and what is wrong with them."""

from __future__ import annotations

from dataclasses import dataclass, field

from .findings import CheckpointFinding, Note
from .tree import TreeEntry


@dataclass(slots=True)
class Needs:
    """The files that a start needs, the faults in them, and those that could not be verified.

    `partial`: there may be more that it takes.
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
