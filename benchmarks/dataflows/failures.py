"""The failures of a seeded run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kill:
    """A node dies: it loses its memory and all messages to and from it."""

    step: int
    node: str
    #: The node returns after this time, empty; None means never.
    back_after_s: float | None = None


@dataclass(frozen=True)
class Hang:
    """A node stops for a while, and then continues as if nothing had happened."""

    step: int
    node: str
    for_s: float


@dataclass(frozen=True)
class CutLink:
    """The connection of two nodes breaks: messages under way are lost, and both nodes notice."""

    step: int
    nodes: tuple[str, str]


@dataclass(frozen=True)
class KillRunning:
    """The node that runs a unit dies at a given time."""

    at_s: float
    unit: str


#: The step before which this happens.
Failure = Kill | Hang | CutLink
