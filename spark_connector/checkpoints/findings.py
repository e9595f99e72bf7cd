"""What is wrong with a checkpoint: the values of `peacefs checkpoint verify --json`."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from peacefs.protocol.errors import CheckpointDamaged, CheckpointTooNew


class Fault(StrEnum):
    """Of what kind."""

    MISSING = "missing"
    DAMAGED = "damaged"
    #: Whole in itself, and at odds with the rest.
    INCONSISTENT = "inconsistent"
    #: Of a format that this program does not know.
    TOO_NEW = "too new"


class Finding(msgspec.Struct, frozen=True):
    """Something wrong with a file, by its path relative to the root. `stops`: a restart fails on it."""

    path: str
    fault: Fault
    reason: str
    stops: bool = True


class Note(msgspec.Struct, frozen=True):
    """What could not be verified, and nothing is wrong with: a file or directory, and why."""

    path: str
    reason: str


class Verdict(msgspec.Struct, frozen=True):
    """What a verification found.

    `batch` is the one judged: None where none was ever done. `last_good` is the latest batch, up to that one,
    that a query could go on from. `restarts`: it would, from the checkpoint as it is, as far as `notes` let one
    know.
    """

    root: str
    query: str | None
    planned: int | None
    committed: int | None
    batch: int | None
    last_good: int | None
    restarts: bool
    files_read: int
    bytes_read: int
    findings: list[Finding]
    notes: list[Note] = []


def damage(path: str, error: CheckpointDamaged, *, stops: bool = True) -> Finding:
    """What a parser said of a file."""
    kind = Fault.TOO_NEW if isinstance(error, CheckpointTooNew) else Fault.DAMAGED
    return Finding(path, kind, error.message, stops)
