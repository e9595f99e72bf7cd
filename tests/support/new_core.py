"""A coordinator's core for tests that need no metadata behind it."""

from __future__ import annotations

from random import Random
from typing import Any

from peacefs.coordinator.core import CoordinatorCore
from peacefs.coordinator.metadata.epochs import Epochs
from peacefs.protocol.ids import Numbering


def new_core(now_s: float = 0.0, *, numbering: Numbering | None = None, **options: Any) -> CoordinatorCore:
    """Make a core in its first epoch, unless `numbering` has another. `options` are the core's."""
    return CoordinatorCore(now_s, Epochs(numbering or Numbering(1), now_s), Random(1), **options)
