"""A sink that writes a directory of files, which appear whole and have each row once.

attacks = FileSink("s3://bucket/attacks", format="parquet", partition_by=["day"])
host.start(query.network(), SGuard(interval_s=1), sources, {"attacks": attacks}, RunOptions(resume=True))

Files are written below `_peacefs`, where readers do not look. A small file, the manifest, then says which of them
are published under which names: that is the commit. A program that is killed before the commit leaves nothing that
readers see. A program that is killed after it leaves renames for its successor to finish.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal
from urllib.parse import quote

import msgspec
import pyarrow as pa

from peacefs.dataflow.model.stream_type import names_of
from peacefs.protocol.errors import InvalidQuery, QueryFailed, StartupError

from .committing_sink import CommittingSink
from .file_formats import FileFormat, format_of
from .file_source import NULL_PARTITION
from .file_tree import FileTree
from .interface import SinkOpening
from .sink_progress import CommitRule

# Maximum number of partitions that one commit writes.
file_partitions_max: Final = 1000
# The directory of manifests and of files that are not published.
_CONTROL: Final = "_peacefs"


class _Manifest(msgspec.Struct, frozen=True):
    """The record of one commit: the number of its last row, and its files as (staged name, final name)."""

    number: int
    files: list[tuple[str, str]]


class FileSink(CommittingSink):
    """Writes files of one commit each, into a directory for each value of the columns in `partition_by`."""

    def __init__(
        self,
        url: str,
        *,
        format: Literal["parquet", "jsonl", "csv"] = "parquet",
        partition_by: Sequence[str] = (),
        interval_s: float = 10.0,
        rows_max: int = 1_000_000,
        patience_s: float = 600.0,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """`interval_s`, `rows_max`: how long to wait, and how many rows, for one file. `options`: of fsspec.

        `patience_s`: how long rows wait for the file system before the query stops. Raises InvalidQuery,
        StartupError.
        """
        columns = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        committer = FileCommitter(FileTree(url, options), format_of(format), columns)
        super().__init__(f"directory {url}", committer, CommitRule(interval_s, rows_max), patience_s=patience_s)


class FileCommitter:
    """Stages files, and publishes them with a manifest. Prepared rows are in memory until the commit."""

    def __init__(self, tree: FileTree, format: FileFormat, partition_by: Sequence[str]) -> None:
        self._tree, self._format, self._partition_by = tree, format, partition_by
        self._batches: list[pa.RecordBatch] = []
        self._first = 0
        self._sink = self._control = self._newest = ""

    def open(self, opening: SinkOpening) -> int:
        self._check_columns(opening)
        self._batches = []
        # Names of files contain the query's id: rows of another query have other numbers.
        self._sink = f"{quote(opening.sink, safe='')}-{opening.instance}"
        self._control = f"{_CONTROL}/{self._sink}"
        found = sorted(each.path for each in self._tree.files(self._control))
        manifests = [path for path in found if path.rpartition("/")[2].startswith("commit-")]
        if opening.fresh or not manifests:
            if not opening.fresh:
                raise StartupError(
                    f"{self._tree} has no {self._control}/commit-*, which says what the query has written: "
                    "restore it, or begin the query anew with other directories"
                )
            self._write_manifest(_Manifest(0, []))
            return 0
        self._newest = manifests[-1]
        manifest = msgspec.json.decode(self._tree.read(self._newest), type=_Manifest)
        self._publish(manifest)
        for path in found:
            if path != self._newest:
                self._tree.remove(path)
        return manifest.number

    def append(self, first: int, rows: pa.RecordBatch) -> None:
        if not self._batches:
            self._first = first
        self._batches.append(rows)

    def commit(self, number: int) -> None:
        parts = self._parts(pa.Table.from_batches(self._batches))
        files = []
        for at, (directory, rows) in enumerate(sorted(parts.items())):
            staged = f"{self._control}/{number:018d}-{at:04d}.staged"
            name = f"{self._sink}-{self._first:018d}-{number:018d}{self._format.suffix}"
            self._tree.write(staged, self._format.write(rows, str(self._tree)))
            files.append((staged, directory + name))
        older = self._newest
        manifest = _Manifest(number, files)
        self._write_manifest(manifest)
        self._publish(manifest)
        self._batches = []
        if older and older != self._newest:
            self._tree.remove(older)

    def close(self) -> None:
        self._batches = []

    # -- inside -------------------------------------------------------------------------------------------

    def _check_columns(self, opening: SinkOpening) -> None:
        names = opening.kind.schema.names
        for column in self._partition_by:
            if column not in names:
                raise InvalidQuery(
                    f"partition_by names {column!r}, and sink {opening.sink!r} has {names_of(names)}"
                )
            kind = opening.kind.schema.field(column).type
            if not (pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_date(kind)):
                raise InvalidQuery(
                    f"partition_by names {column!r} of type {kind}: texts, integers and dates name directories"
                )
        if set(self._partition_by) == set(names):
            raise InvalidQuery("partition_by names all columns: nothing is left for the files")

    def _parts(self, rows: pa.Table) -> dict[str, pa.Table]:
        """Return the rows of each directory, in their order."""
        if not self._partition_by:
            return {"": rows}
        values = zip(*(rows.column(column).to_pylist() for column in self._partition_by), strict=True)
        places: dict[tuple[object, ...], list[int]] = {}
        for at, value in enumerate(values):
            places.setdefault(value, []).append(at)
        if len(places) > file_partitions_max:
            raise QueryFailed(
                f"{self._tree}: one commit has rows for {len(places):,} directories, and {file_partitions_max:,} "
                "are the limit: partition by a column with fewer values"
            )
        kept = rows.drop_columns(list(self._partition_by))
        return {
            "".join(
                f"{quote(column, safe='')}={NULL_PARTITION if value is None else quote(str(value), safe='')}/"
                for column, value in zip(self._partition_by, key, strict=True)
            ): kept.take(at)
            for key, at in places.items()
        }

    def _write_manifest(self, manifest: _Manifest) -> None:
        """Commit by writing the manifest. After a failure, the next `open` publishes the files that it names."""
        name = f"{self._control}/commit-{manifest.number:018d}"
        staged = f"{self._control}/commit.staged"
        self._tree.write(staged, msgspec.json.encode(manifest))
        self._tree.publish(staged, name)
        self._newest = name

    def _publish(self, manifest: _Manifest) -> None:
        # A staged file that is gone was published. Its readers may have moved or deleted it since.
        for staged, name in manifest.files:
            self._tree.publish(staged, name)
