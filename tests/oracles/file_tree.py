"""What files must contain after a series of changes: bytes in memory, by path. Imports nothing of the product."""

from __future__ import annotations


class FileTree:
    """The files of one directory, by name, and its snapshots.

    A caller makes each change here and on the cluster. Only changes that HDFS accepts may be made.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.snapshots: dict[str, dict[str, bytes]] = {}

    def create(self, name: str, data: bytes) -> None:
        """Create a file, or replace it."""
        self.files[name] = data

    def append(self, name: str, data: bytes) -> None:
        self.files[name] += data

    def truncate(self, name: str, length: int) -> None:
        assert length <= len(self.files[name])
        self.files[name] = self.files[name][:length]

    def concat(self, target: str, sources: list[str]) -> None:
        """Append the contents of `sources` to `target`, and remove `sources`."""
        assert target not in sources and len(set(sources)) == len(sources) and all(self.files[s] for s in sources)
        self.files[target] += b"".join(self.files.pop(source) for source in sources)

    def rename(self, source: str, target: str) -> None:
        """Rename a file, replacing an existing target."""
        if source != target:
            self.files[target] = self.files.pop(source)

    def copy(self, source: str, target: str) -> None:
        assert target not in self.files
        self.files[target] = self.files[source]

    def delete(self, name: str) -> None:
        del self.files[name]

    def snapshot(self, snapshot: str) -> None:
        self.snapshots[snapshot] = dict(self.files)

    def everything(self) -> dict[str, bytes]:
        """Return all files by path below the directory, both current and in snapshots."""
        shown = {
            f".snapshot/{snapshot}/{name}": data
            for snapshot, files in self.snapshots.items()
            for name, data in files.items()
        }
        return {**self.files, **shown}
