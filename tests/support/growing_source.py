"""A directory of text files for a streaming query, one file per batch."""

from __future__ import annotations

from pathlib import Path

_ROWS = 100


class GrowingSource:
    """Adds files as long as the query needs input."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.directory = directory
        self.files = 0

    def add(self) -> None:
        unseen = self.directory / f".{self.files}"
        unseen.write_text("".join(f"{row % 7}\n" for row in range(_ROWS)))
        unseen.rename(self.directory / f"{self.files}.txt")
        self.files += 1

    def counts(self) -> dict[str, int]:
        """Return how often each line has been written."""
        return {str(value): self.files * len(range(value, _ROWS, 7)) for value in range(7)}
