"""The faults that a verification finds: the values of `peacefs checkpoint verify --json`."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from peacefs.protocol.errors import CheckpointAltered, CheckpointDamaged, CheckpointTooNew

_FILES_NAMED = 4


class Fault(StrEnum):
    """The kind of a fault."""

    MISSING = "missing"
    DAMAGED = "damaged"
    #: Whole in itself, and at odds with the rest.
    INCONSISTENT = "inconsistent"
    #: A format that this program does not know.
    TOO_NEW = "too new"


class CheckpointFinding(msgspec.Struct, frozen=True):
    """Something wrong with a file, by its path relative to the root.

    `stops`: a start fails on it, or, where it is not `noticed`, reads something else than what was written.
    """

    path: str
    fault: Fault
    reason: str
    stops: bool = True
    noticed: bool = True


class Note(msgspec.Struct, frozen=True):
    """A file or directory that could not be verified, without being wrong, and why."""

    path: str
    reason: str


class CheckpointRepair(msgspec.Struct, frozen=True):
    """The files whose removal makes a query start, by their paths relative to the root, and what then happens.

    `repeats`: the batch that is given to the sink again, as it was. `plans_anew`: the batch whose plan goes.
    """

    remove: list[str]
    reason: str
    goes_on_with: int
    repeats: int | None = None
    plans_anew: int | None = None

    @property
    def files(self) -> str:
        """The last few files by name, which are those that matter most, and how many more there are."""
        more = len(self.remove) - _FILES_NAMED
        return ", ".join(self.remove[-_FILES_NAMED:]) + (f" and {more} more" if more > 0 else "")


class StartVerdict(msgspec.Struct, frozen=True):
    """The verdict on one way to start the query: `mode` is one of `start_modes.StartMode`.

    `goes_on_with` is its first batch, None where it does not start, and `repeats` says that it is one that was
    planned before. `against` is what is in the way, or what it would do with rows that were given out.
    """

    mode: str
    starts: bool
    goes_on_with: int | None
    repeats: bool
    against: list[str]


class Verdict(msgspec.Struct, frozen=True):
    """The result of a verification.

    `batch` is the one judged: None where none was ever done. `last_good` is the latest batch, up to that one,
    that a query could go on from after a rollback. `restarts`: it would start from the checkpoint as it is, as far
    as `notes` let one know, and its first batch is `goes_on_with`. `repair` is what makes it start, where a file
    or two are in the way.

    All of that is for a start in `mode`, the way in which the query that wrote it was started, as far as the
    checkpoint tells. `starts` has the verdict for each way.
    """

    root: str
    query: str | None
    planned: int | None
    committed: int | None
    batch: int | None
    last_good: int | None
    restarts: bool
    goes_on_with: int | None
    files_read: int
    bytes_read: int
    findings: list[CheckpointFinding]
    mode: str
    starts: list[StartVerdict]
    notes: list[Note] = []
    repair: CheckpointRepair | None = None


def damage(path: str, error: CheckpointDamaged, *, stops: bool = True) -> CheckpointFinding:
    """Make a finding of a parser's complaint about a file."""
    kind = Fault.TOO_NEW if isinstance(error, CheckpointTooNew) else Fault.DAMAGED
    return CheckpointFinding(path, kind, error.message, stops, noticed=not isinstance(error, CheckpointAltered))
