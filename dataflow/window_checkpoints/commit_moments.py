"""The recent commits, back to the oldest one that contains the footprint of an open window.

A recovery would go back to that commit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .contents import WindowContents
from .control_tuples import CommitPlace
from .extent import Extent
from .footprints import Footprints


@dataclass(frozen=True)
class CommitMoment:
    """A commit: its place, the number of its first tuple, the number of rows so far, and its time."""

    place: CommitPlace
    first_tuple: int
    rows: int
    at_s: float
    marks: Mapping[str, Any]


class CommitMoments:
    """The moments of commits, oldest first. There is always at least one."""

    def __init__(self, first: CommitMoment) -> None:
        self._moments = deque([first])

    def begin_log(self) -> None:
        """Note that a new log begins, whose tuples are counted from 1."""
        self._moments = deque(replace(moment, first_tuple=1) for moment in self._moments)

    def add(self, moment: CommitMoment) -> None:
        self._moments.append(moment)

    def since(self, footprints: Footprints | None, contents: WindowContents, number: int) -> CommitMoment:
        """Return the moment from which rows are needed at commit `number`, and drop all earlier moments."""
        if footprints is not None:
            oldest = footprints.oldest
            self._forget_before(number if oldest is None else oldest)
        else:
            while len(self._moments) > 1 and contents.reaches_back_to(self._moments[1].marks):
                self._moments.popleft()
        return self._moments[0]

    def extent(self, oldest: int, windows: int, now: CommitMoment, open_windows: int) -> Extent:
        """Return the extent, and how much a check of the windows of the oldest commit would reduce it.

        `now`: the present end of the log and position of the input.
        """
        self._forget_before(oldest)
        moment, following = self._moments[0], self._moments[1]
        return Extent(
            open_windows,
            now.first_tuple - moment.first_tuple,
            now.rows - moment.rows,
            now.at_s - moment.at_s,
            windows,
            following.first_tuple - moment.first_tuple,
            following.rows - moment.rows,
        )

    def _forget_before(self, oldest: int) -> None:
        while self._moments[0].place.commit < oldest:
            self._moments.popleft()
