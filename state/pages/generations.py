"""Decide to which older checkpoints a new one may still refer. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .frames import Words


def choose_rewritten(
    stored_in: Words, stored_counts: Mapping[int, int], generations_max: int, live_share_min: float
) -> set[int]:
    """Return the checkpoints whose pages to write again. `stored_in` is where each unchanged page is.

    Keeps at most `generations_max` checkpoints, those with the most needed pages. Drops a checkpoint if less than
    `live_share_min` of its pages are needed: a restore would read the rest for nothing.
    """
    sequences, needed = np.unique(stored_in, return_counts=True)
    live = dict(zip(sequences.tolist(), needed.tolist(), strict=True))
    sparse = {each for each, count in live.items() if count < live_share_min * stored_counts.get(each, 0)}
    stay = sorted((each for each in live if each not in sparse), key=lambda each: (live[each], each), reverse=True)
    return sparse | set(stay[generations_max:])
