"""The parameters of one start of a unit."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from peacefs.dataflow.core.restart_point import RestartPoint
from peacefs.dataflow.model.phases import Phases


@dataclass(frozen=True)
class UnitStart:
    """One start of a unit: its number, its place in a pair, and what an earlier start has left."""

    incarnation: int
    #: The place in a pair of replicas.
    slot: int = 0
    #: Maximum number of requests that the unit's inputs can have made before, under the same incarnation.
    attempts: int = 0
    #: The restart point at which the unit begins, if there is one, and the phases of its operators at that point.
    restart: RestartPoint | None = None
    phases: Mapping[str, Phases] = field(default_factory=dict)
    #: Source of the random seeds of functions.
    chance: random.Random | None = None
