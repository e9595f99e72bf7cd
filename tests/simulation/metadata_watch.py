"""The invariants of the simulated coordinator's metadata after each commit and after each crash."""

from __future__ import annotations

from typing import NamedTuple

from peacefs.coordinator.metadata.sqlite.check import check_tables
from peacefs.coordinator.metadata.sqlite.store import MetadataInMemory


def check_sound(metadata: MetadataInMemory) -> None:
    """All that `peacefs metadata check` looks at: among it, that quotas count what a recount finds."""
    findings = check_tables(metadata.imaged(), lambda _name, _done, _all: None)
    assert findings.problems == []


class _Row(NamedTuple):
    names_max: int | None
    bytes_max: int | None
    names: int
    bytes: int


class QuotaWatch:
    """No directory comes to hold more than its quota; one that held more when that was set gets no fuller."""

    def __init__(self, metadata: MetadataInMemory) -> None:
        self._metadata = metadata
        self._seen = self._rows()
        self.looks = 0

    def look(self) -> None:
        """To be called after each commit."""
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
        statement = "SELECT directory, names_max, bytes_max, names, bytes FROM quota"
        return {directory: _Row(*row) for directory, *row in self._metadata.imaged().execute(statement)}
