"""The begun and committed batches of a checkpoint directory."""

from __future__ import annotations

from collections.abc import Iterator

from peacefs.client.control.names import ListingPage
from peacefs.client.control.values import ContentSummary, FileStatus
from peacefs.protocol.errors import FileNotFound
from peacefs.spark_connector.checkpoints.batches import Checkpoint


class Files:
    """Directories by path, each a list of names, returned in pages of two."""

    def __init__(self, directories: dict[str, list[str]]) -> None:
        self._directories = directories

    def pages(self, path: str) -> Iterator[ListingPage]:
        if path not in self._directories:
            raise FileNotFound(path)
        names = self._directories[path]
        for first in range(0, len(names), 2):
            page = names[first : first + 2]
            entries = [FileStatus(f"{path}/{name}", False, 1, "u", "g", 0o644, 0, 0, 1, 3) for name in page]
            yield ListingPage(entries, max(0, len(names) - first - 2))

    def content_summary(self, path: str) -> ContentSummary:
        return ContentSummary(1, len(self._directories[path]), 10, 30)


def test_a_query_that_never_started_has_begun_nothing() -> None:
    checkpoint = Checkpoint(Files({}), "/c")
    assert (checkpoint.begun(), checkpoint.committed()) == (None, None)


def test_a_batch_under_way_is_begun_and_not_committed() -> None:
    offsets = ["0", "1", "10", "2", "9", ".11.3b1f.tmp"]
    checkpoint = Checkpoint(Files({"/c/offsets": offsets, "/c/commits": ["0", "1", "2", "9"]}), "/c")
    assert (checkpoint.begun(), checkpoint.committed()) == (10, 9)


def test_other_files_are_no_batches() -> None:
    checkpoint = Checkpoint(Files({"/c/offsets": [".0.crc", "0.tmp"], "/c/commits": []}), "/c")
    assert (checkpoint.begun(), checkpoint.committed()) == (None, None)
