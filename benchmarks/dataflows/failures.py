"""Failures that a seeded run is given."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kill:
    """A node dies: its memory is gone, and what is on its way from and to it."""

    step: int
    node: str
    #: After so long it is there again, empty; never if None.
    back_after_s: float | None = None


@dataclass(frozen=True)
class Hang:
    """A node does nothing for a while, and then goes on as if nothing had happened."""

    step: int
    node: str
    for_s: float


@dataclass(frozen=True)
class CutLink:
    """The connection of two nodes breaks: what is on its way is lost, and both learn of it."""

    step: int
    nodes: tuple[str, str]


@dataclass(frozen=True)
class KillRunning:
    """The node that runs a unit at a time dies."""

    at_s: float
    unit: str


#: Before a step.
Failure = Kill | Hang | CutLink
