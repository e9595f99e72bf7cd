"""The control tuples of one commit: opened windows, closed windows, and checks of windows with old tuples."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from .commit_moments import CommitMoment, CommitMoments
from .contents import WindowContents
from .control_tuples import TupleKind
from .extent import WindowChoice
from .footprints import Footprints

cec_windows_per_check: Final = 2048


def all_windows(contents: WindowContents, footprints: Footprints, number: int) -> list[tuple[TupleKind, pa.Table]]:
    """Return all open windows, for the first commit of a log. All get their footprints in this commit."""
    ids, rows = contents.all(number)
    footprints.clear()
    footprints.put(ids, number)
    return [(TupleKind.OPEN, rows)] if rows.num_rows else []


def changed_windows(
    contents: WindowContents, footprints: Footprints, number: int
) -> list[tuple[TupleKind, pa.Table]]:
    """Return the windows that have closed and opened since the previous commit."""
    changes = contents.changes(number)
    footprints.drop_before(contents.closed_before)
    footprints.remove(0, changes.left)
    footprints.put(changes.opened, number)
    parts = [(TupleKind.CLOSE, changes.closed), (TupleKind.OPEN, changes.rows)]
    return [(kind, part) for kind, part in parts if part.num_rows]


class WindowChecks:
    """Checks of windows in one commit, oldest footprints first."""

    def __init__(
        self,
        contents: WindowContents,
        footprints: Footprints,
        moments: CommitMoments,
        choice: WindowChoice | None,
    ) -> None:
        """`choice`: decides whether another check is wanted. None: always."""
        self._contents, self._footprints, self._moments, self._choice = contents, footprints, moments, choice

    def next(self, now: CommitMoment) -> pa.Table | None:
        """Check some windows, and return their tuples. None if no more checks are wanted.

        `now`: the commit, with the present end of its log.
        """
        footprints, number = self._footprints, now.place.commit
        while (taken := footprints.take_oldest(cec_windows_per_check)) is not None:
            oldest, ids = taken[0], self._contents.with_footprint(taken[1], taken[0])
            if not ids.num_rows:
                continue
            if oldest == number or not self._is_wanted(oldest, ids.num_rows, now):
                footprints.put_back(oldest, ids)
                return None
            contents = self._contents.check(ids, number)
            footprints.check(ids, oldest, number)
            return contents
        return None

    def _is_wanted(self, oldest: int, windows: int, now: CommitMoment) -> bool:
        if self._choice is None:
            return True
        return self._choice.wants_check(self._moments.extent(oldest, windows, now, self._footprints.open_windows))
