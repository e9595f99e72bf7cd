"""The results of a verification: the values of `peacefs checkpoint verify --json`."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from peacefs.protocol.errors import CheckpointAltered, CheckpointDamaged, CheckpointTooNew

_FILES_NAMED = 4


class Fault(StrEnum):
    MISSING = "missing"
    DAMAGED = "damaged"
    #: Whole in itself, but contradicts other files.
    INCONSISTENT = "inconsistent"
    #: A format that this program does not know.
    TOO_NEW = "too new"


class CheckpointFinding(msgspec.Struct, frozen=True):
    """A fault of a file. `path` is relative to the root.

    `stops`: a start fails because of the fault or, if Spark does not notice it (`noticed`), reads wrong data.
    """

    path: str
    fault: Fault
    reason: str
    stops: bool = True
    noticed: bool = True


class Note(msgspec.Struct, frozen=True):
    """A file or directory that could not be verified, and why. It need not be wrong."""

    path: str
    reason: str


class CheckpointRepair(msgspec.Struct, frozen=True):
    """Files whose removal lets the query start, as paths relative to the root, and what happens then.

    `repeats` is the batch that the sink receives again unchanged. `plans_anew` is the batch whose plan is removed.
    """

    remove: list[str]
    reason: str
    goes_on_with: int
    repeats: int | None = None
    plans_anew: int | None = None

    @property
    def files(self) -> str:
        """The names of the last few files, which matter most, and the number of the others."""
        more = len(self.remove) - _FILES_NAMED
        return ", ".join(self.remove[-_FILES_NAMED:]) + (f" and {more} more" if more > 0 else "")


class StartVerdict(msgspec.Struct, frozen=True):
    """The verdict on one way to start the query. `mode` is one of `start_modes.StartMode`.

    `goes_on_with` is the first batch, None if the query does not start; `repeats` says whether that batch was
    planned before. `against` lists what prevents the start, or how it would repeat or lose emitted rows.
    """

    mode: str
    starts: bool
    goes_on_with: int | None
    repeats: bool
    against: list[str]


class Verdict(msgspec.Struct, frozen=True):
    """The result of a verification.

    `batch` is the batch that was judged, None if none was ever done. `last_good` is the latest batch, at most that
    one, from which a query could continue after a rollback. `restarts` says whether a query would start from the
    checkpoint as it is, as far as it could be verified (see `notes`); `goes_on_with` is then its first batch.
    `repair` is set if removing a few files makes it start.

    These fields assume `mode`, the way in which the query was started before, as far as the checkpoint tells.
    `starts` has a verdict for each mode.
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
    """Make a finding of a parser's error."""
    kind = Fault.TOO_NEW if isinstance(error, CheckpointTooNew) else Fault.DAMAGED
    return CheckpointFinding(path, kind, error.message, stops, noticed=not isinstance(error, CheckpointAltered))
