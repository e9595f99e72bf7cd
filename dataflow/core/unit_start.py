"""How a unit begins, and how much of its rows may be in memory."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from peacefs.dataflow.model.phases import Phases

from .restart_point import RestartPoint


@dataclass(frozen=True)
class UnitStart:
    """One start of a unit: its number, its place in a pair, and what an earlier start has left."""

    incarnation: int
    #: The place in a pair of replicas.
    slot: int = 0
    #: Maximum number of requests that the unit's inputs can have made before, under the same incarnation.
    attempts: int = 0
    #: The point at which the unit begins, if an earlier start has noted one, and the phases of operators there.
    restart: RestartPoint | None = None
    phases: Mapping[str, Phases] = field(default_factory=dict)
    #: Gives the seeds of what functions draw.
    chance: random.Random | None = None


@dataclass(frozen=True)
class BufferBounds:
    """Bytes of rows that the edges of a unit keep at most. See `Bounds`, from which they come."""

    credit_bytes: int
    buffer_bytes_max: int
    retained_bytes_max: int
