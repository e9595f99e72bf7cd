"""The invariants of the simulated coordinator's metadata after each commit and after each crash."""

from __future__ import annotations

from typing import NamedTuple

import apsw

from peacefs.coordinator.metadata.row_store import Rows
from peacefs.coordinator.metadata.sqlite.check import check_tables
from peacefs.coordinator.metadata.sqlite.store import MetadataInMemory
from peacefs.coordinator.metadata.tables import QUOTA


def check_image(image: apsw.Connection) -> None:
    """Check an image as `peacefs metadata check` does. This also recounts quotas."""
    findings = check_tables(image, lambda _name, _done, _all: None)
    assert findings.problems == []


def check_sound(metadata: MetadataInMemory) -> None:
    """Check a store with all entries of its log."""
    check_image(metadata.imaged())


class _Row(NamedTuple):
    names_max: int | None
    bytes_max: int | None
    names: int
    bytes: int


class QuotaWatch:
    """Checks that no directory grows beyond its quota, even if it was over the quota when that was set."""

    def __init__(self, rows: Rows) -> None:
        self._all = rows
        self._seen = self._rows()
        self.looks = 0

    def look(self) -> None:
        """Compare with the state at the last call. Call it after each entry."""
        rows = self._rows()
        self.looks += bool(rows)
        for directory, now in rows.items():
            before = self._seen.get(directory)
            if before is None or before[:2] != now[:2]:
                continue
            assert now.names_max is None or now.names <= max(now.names_max, before.names), (directory, before, now)
            assert now.bytes_max is None or now.bytes <= max(now.bytes_max, before.bytes), (directory, before, now)
        self._seen = rows

    def _rows(self) -> dict[int, _Row]:
        return {directory: _Row(*row) for directory, *row in self._all.small[QUOTA].values()}
