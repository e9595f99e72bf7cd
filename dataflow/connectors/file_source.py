"""A source that reads a directory of files, each once, in the order of their times and names.

events = FileSource("peace://localhost:9870/in", {"user": "string", "at": "timestamp"}, time="at", format="csv")
query.source("events", events.type)
host.start(query.network(), SGuard(interval_s=1), {"events": events}, sinks, RunOptions(resume=True))
"""

from __future__ import annotations

import posixpath
import time as clock
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import unquote

import pyarrow as pa

from peacefs.dataflow.model.schemas import Schema, as_schema
from peacefs.dataflow.model.stream_type import StreamType
from peacefs.protocol.errors import PeerUnreachable, QueryFailed, StartupError

from .file_formats import FileFormat, UnreadableFile, conform, format_of
from .file_tree import FileTree, FoundFile
from .interface import PartPlace, Slice, Taken
from .parted_source import PartedSource

_SLICE_ROWS: Final = 65_536
#: How a directory of a partition says that the column is null.
NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class FileRead:
    """How a directory is read.

    `follow`: if False, end when all files are read. `poll_s`: how often new files are looked for. `files_max`: the
    maximum number of files in the directory; the source remembers each until it is deleted. `patience_s`: stop the
    query if the directory cannot be read for so long.
    """

    follow: bool = True
    poll_s: float = 0.5
    files_max: int = 10_000
    patience_s: float = 600.0


class FileSource(PartedSource):
    """The rows of all files below a directory, also of those that appear later.

    Files must appear whole, by a rename, and never change. Names that begin with `.` or `_` are ignored.
    Directories such as `day=2026-01-01` give columns that the files do not have. Files may be deleted once a
    checkpoint covers their rows.
    """

    def __init__(
        self,
        url: str,
        schema: Schema,
        *,
        time: str,
        format: Literal["parquet", "jsonl", "csv"] = "parquet",
        read: FileRead | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """`options`: the storage options of fsspec. Raises InvalidQuery, StartupError."""
        kind = StreamType(as_schema(schema), time)
        reader = FileReader(FileTree(url, options), kind, format_of(format), read or FileRead())
        super().__init__(f"directory {url}", kind, reader)


class FileReader:
    """Reads files: each is a part, and its positions are numbers of rows."""

    def __init__(self, tree: FileTree, kind: StreamType, format: FileFormat, read: FileRead) -> None:
        self._tree, self._kind, self._format, self._read = tree, kind, format, read
        # The file that is being given.
        self._path: str | None = None
        self._rows: pa.Table | None = None
        self._stamp = ""
        self._answered_s = clock.monotonic()
        # Unread files of the last listing, the next one last, and when to list again.
        self._unread: list[FoundFile] = []
        self._due_s = 0.0

    def open(self, identity: str | None, starts: Mapping[str, PartPlace]) -> str:
        if identity is not None and identity != self._tree.url:
            raise StartupError(
                f"the query has read {identity}, and is given {self._tree}: give it the same directory, or begin "
                "it anew with another directory of checkpoints"
            )
        try:
            self._tree.files()
        except PeerUnreachable as error:
            raise StartupError(error.message) from error
        return self._tree.url

    def take(self, places: Mapping[str, PartPlace]) -> Taken:
        try:
            wait_s = self._due_s - clock.monotonic()
            gone: Sequence[str] = ()
            if wait_s <= 0:
                gone = self._list(places)
                if not self._unread:
                    return Taken(gone=gone, ended=not self._read.follow)
            elif not self._unread:
                clock.sleep(min(wait_s, 0.5))
                return Taken()
            wanted = self._unread[-1]
            slices = self._slices(wanted, places.get(wanted.path, PartPlace(0)))
            if slices[-1][0].last:
                self._unread.pop()
                if not self._unread:
                    self._due_s = 0.0
            return Taken(slices, gone)
        except PeerUnreachable as error:
            self._check_patience(error)
            self._unread = []
            self._due_s = clock.monotonic() + self._read.poll_s
            return Taken()

    def again(self, wanted: Slice) -> pa.RecordBatch:
        while True:
            try:
                found = {each.path: each for each in self._tree.files(posixpath.dirname(wanted.part))}
                self._answered_s = clock.monotonic()
                file = found.get(wanted.part)
                if file is None:
                    raise QueryFailed(
                        f"{wanted.part} in {self._tree} is gone, and the query needs its rows again: restore it, "
                        "and keep files until a checkpoint covers them"
                    )
                self._check_stamp(file, wanted.stamp)
                return _between(self._loaded(file), wanted.begin, wanted.end)
            except PeerUnreachable as error:
                self._check_patience(error)
                clock.sleep(self._read.poll_s)

    def close(self) -> None:
        self._path = self._rows = None

    # -- inside -------------------------------------------------------------------------------------------

    def _list(self, places: Mapping[str, PartPlace]) -> list[str]:
        """Look for unread files. Return the files that are gone. Raises QueryFailed, PeerUnreachable."""
        found = {each.path: each for each in self._tree.files() if not _is_hidden(each.path)}
        self._answered_s = clock.monotonic()
        gone = self._check(found, places)
        self._unread = sorted(
            (each for each in found.values() if each.path not in places or not places[each.path].last),
            key=lambda each: (each.path not in places, each.modified_s, each.path),
            reverse=True,
        )
        self._due_s = clock.monotonic() + self._read.poll_s
        return gone

    def _check(self, found: Mapping[str, FoundFile], places: Mapping[str, PartPlace]) -> list[str]:
        """Return the files that are gone. Raises QueryFailed for too many, changed or lost files."""
        if len(found) > self._read.files_max:
            raise QueryFailed(
                f"{self._tree} has {len(found):,} files, and the source remembers {self._read.files_max:,}: "
                "delete or move those that were read, or raise FileRead(files_max=...)"
            )
        gone = []
        for path, place in places.items():
            file = found.get(path)
            if file is not None:
                self._check_stamp(file, place.stamp)
            elif self._tree.exists(path):
                # Forgetting it would give its rows twice.
                continue
            elif place.last:
                gone.append(path)
            else:
                raise QueryFailed(f"{path} in {self._tree} was deleted while it was read: restore it, and resume")
        return gone

    def _check_stamp(self, file: FoundFile, stamp: str) -> None:
        if file.stamp != stamp:
            raise QueryFailed(
                f"{file.path} in {self._tree} has changed since it was read ({stamp}, now {file.stamp}): files "
                "are read once; restore it, and write changes to new files"
            )

    def _slices(self, file: FoundFile, place: PartPlace) -> list[tuple[Slice, pa.RecordBatch]]:
        """Return the next rows of a file, up to 16 slices."""
        rows = self._loaded(file)
        made, begin = [], place.end
        while True:
            end = min(begin + _SLICE_ROWS, rows.num_rows)
            last = end == rows.num_rows
            made.append((Slice(file.path, begin, end, end - begin, file.stamp, last), _between(rows, begin, end)))
            if last or len(made) == 16:
                return made
            begin = end

    def _loaded(self, file: FoundFile) -> pa.Table:
        """Return the rows of a file. Keep them in memory until another file is read."""
        if self._rows is None or (self._path, self._stamp) != (file.path, file.stamp):
            self._rows = self._parsed(file)
            self._path, self._stamp = file.path, file.stamp
        return self._rows

    def _parsed(self, file: FoundFile) -> pa.Table:
        if not _is_text(file.path):
            raise QueryFailed(f"{file.path!a} in {self._tree} is no name in UTF-8: rename the file, and resume")
        directories = _columns_of(file.path)
        schema = self._kind.schema
        own = pa.schema([field for field in schema if field.name not in directories])
        try:
            with self._tree.open(file.path) as opened:
                table = self._format.read(opened, own)
            for name, text in directories.items():
                if name in schema.names and name not in table.schema.names:
                    value = pa.scalar(text, pa.string()).cast(schema.field(name).type)
                    table = table.append_column(name, pa.repeat(value, table.num_rows))
            return conform(table, self._kind)
        except UnreadableFile as error:
            raise QueryFailed(
                f"{file.path} in {self._tree} cannot be read: {error}; correct or remove it, and resume"
            ) from error
        except pa.ArrowException as error:
            raise QueryFailed(f"{file.path} in {self._tree} names a value that does not fit: {error}") from error

    def _check_patience(self, error: PeerUnreachable) -> None:
        silent_s = clock.monotonic() - self._answered_s
        if silent_s > self._read.patience_s:
            raise QueryFailed(
                f"{error.message}, for {silent_s:.0f} s: resume the query when it is back"
            ) from error


def _between(rows: pa.Table, begin: int, end: int) -> pa.RecordBatch:
    batches = rows.slice(begin, end - begin).combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=rows.schema)


def _is_text(path: str) -> bool:
    """Return False for names with other bytes than UTF-8, which no journal can contain."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_hidden(path: str) -> bool:
    return any(name.startswith((".", "_")) for name in path.split("/"))


def _columns_of(path: str) -> dict[str, str | None]:
    """Return the columns that directories such as `day=2026-01-01` give."""
    parts = [part.partition("=") for part in path.split("/")[:-1] if "=" in part]
    return {unquote(name): None if value == NULL_PARTITION else unquote(value) for name, _, value in parts}
