"""Read each file of a checkpoint once, verify it on its own, and cache what it says.

A faulty file gives a cached fault, not a failure: Spark would meet the same fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

from peacefs.protocol.errors import CheckpointAltered, CheckpointDamaged, FileNotFound, PeacefsError
from peacefs.protocol.limits import MIB, packet_bytes

from .findings import Note
from .formats.changelog import Changelog, UnreadableChangelog, parse_changelog
from .formats.checksum_files import Checker, parse_checksum
from .formats.logs import (
    BatchCommit,
    FileLogEntry,
    Offsets,
    QueryMetadata,
    parse_commit,
    parse_file_log,
    parse_offsets,
    parse_query_metadata,
    parse_version,
)
from .formats.operators import StatefulOperator, StateSchema, parse_operator, parse_schema
from .formats.snapshot import StateSnapshot, parse_snapshot
from .formats.sst import TableCheck, check_table
from .layout import CheckpointLayout
from .tree import FileTree, TreeEntry

# Longer text files are not read. The largest are compacted logs of file sources.
checkpoint_text_bytes_max: Final = 256 * MIB
# Of a longer changelog only the checksum is verified, not its content.
checkpoint_changelog_bytes_max: Final = 64 * MIB


_Value = TypeVar("_Value")
_GONE = "it is gone: was it deleted just now?"


class Inspection:
    """The parsed files of one checkpoint, each read at most once, for `judge`, `catalogue` and others.

    Every method that reads raises CheckpointDamaged if the file is not whole, at each call.
    """

    def __init__(self, tree: FileTree, layout: CheckpointLayout) -> None:
        self.layout = layout
        self.tree = tree
        self._known: dict[str, tuple[Any, CheckpointDamaged | None]] = {}
        #: What could not be verified, without being wrong.
        self.notes: set[Note] = set()
        self.files_read = 0
        self.bytes_read = 0

    def of(self, layout: CheckpointLayout) -> Inspection:
        """Return an inspection of the same tree with another layout. It shares what was already read."""
        other = Inspection(self.tree, layout)
        other._known = dict(self._known)
        return other

    def exists(self, path: str) -> bool:
        """Return whether a file exists at a path of the tree, inside the checkpoint or outside."""
        try:
            self.tree.open(path).close()
        except (PeacefsError, OSError):
            return False
        return True

    def query_metadata(self, entry: TreeEntry) -> QueryMetadata:
        return self._once(entry, parse_query_metadata)

    def offsets(self, entry: TreeEntry) -> Offsets:
        return self._once(entry, parse_offsets)

    def commit(self, entry: TreeEntry) -> BatchCommit:
        return self._once(entry, parse_commit)

    def file_log(self, entry: TreeEntry) -> list[FileLogEntry]:
        return self._once(entry, parse_file_log)

    def source_note(self, entry: TreeEntry) -> int:
        """Return the version of a file that only its source understands."""
        return self._once(entry, parse_version)

    def operator(self, entry: TreeEntry) -> StatefulOperator:
        return self._once(entry, parse_operator)

    def schema(self, entry: TreeEntry) -> StateSchema:
        return self._once(entry, parse_schema)

    def changes(self, entry: TreeEntry) -> Changelog | UnreadableChangelog:
        """Return the parsed changelog, or UnreadableChangelog if only its checksums could be verified."""
        if entry.length > checkpoint_changelog_bytes_max:
            self._remembered(entry, lambda: _compare(self._checkers(entry), self._pieces(entry)))
            return UnreadableChangelog(
                f"larger than {checkpoint_changelog_bytes_max >> 20} MiB: too large to be looked into"
            )
        return self._once(entry, parse_changelog)

    def snapshot(self, entry: TreeEntry) -> StateSnapshot:
        return self._once(entry, parse_snapshot)

    def sst(self, entry: TreeEntry) -> TableCheck:
        """Check an SST. Raises CheckpointDamaged if RocksDB would not open it, or if Hadoop could not copy it."""

        def read() -> TableCheck:
            if checkers := self._checkers(entry):
                try:
                    _compare(checkers, self._pieces(entry))
                except CheckpointAltered as altered:
                    raise CheckpointDamaged(altered.message) from None
            try:
                with self.tree.open(entry.path) as source:
                    self.files_read += 1
                    self.bytes_read += entry.length
                    return check_table(source, entry.length)
            except FileNotFound:
                raise CheckpointDamaged(_GONE) from None
            except CheckpointDamaged:
                raise
            except (PeacefsError, OSError) as fault:
                raise CheckpointDamaged(f"it cannot be read: {fault}") from None

        checked: TableCheck = self._remembered(entry, read)
        return checked

    def _once(self, entry: TreeEntry, parse: Callable[[bytes], _Value]) -> _Value:
        """Parse a file, then compare its checksums: a parse error says more than a wrong checksum."""

        def read() -> _Value:
            if entry.length > checkpoint_text_bytes_max:
                raise CheckpointDamaged(f"{entry.length} bytes are more than such a file can be")
            data = b"".join(self._pieces(entry))
            value = parse(data)
            _compare(self._checkers(entry), [data])
            return value

        value: _Value = self._remembered(entry, read)
        return value

    def _remembered(self, entry: TreeEntry, read: Callable[[], Any]) -> Any:
        if entry.path not in self._known:
            try:
                self._known[entry.path] = (read(), None)
            except CheckpointDamaged as fault:
                self._known[entry.path] = (None, fault)
        value, damage = self._known[entry.path]
        if damage is not None:
            raise damage
        return value

    def _pieces(self, entry: TreeEntry) -> Iterator[bytes]:
        try:
            with self.tree.open(entry.path) as source:
                self.files_read += 1
                while piece := source.read(packet_bytes):
                    self.bytes_read += len(piece)
                    yield piece
        except FileNotFound:
            raise CheckpointDamaged(_GONE) from None
        except (PeacefsError, OSError) as fault:
            raise CheckpointDamaged(f"it cannot be read: {fault}") from None

    def _checkers(self, entry: TreeEntry) -> list[Checker]:
        """Return the checksums beside a file. Skip a damaged checksum file of Hadoop's, as Spark does."""
        checkers = []
        for checksum in self.layout.checksum_files(self.layout.relative(entry)):
            data = b"".join(self._pieces(checksum))
            try:
                checkers.append(parse_checksum(data))
            except CheckpointDamaged as damaged:
                if not checksum.name.startswith("."):
                    raise
                path = self.layout.relative(checksum)
                self.notes.add(Note(path, f"{damaged.message}: the file beside it was not compared with it"))
        return checkers


def _compare(checkers: list[Checker], pieces: Iterable[bytes]) -> None:
    """Raise CheckpointDamaged if the data does not match a checksum."""
    if not checkers:
        return
    for piece in pieces:
        for checker in checkers:
            checker.update(piece)
    for checker in checkers:
        checker.finish()
