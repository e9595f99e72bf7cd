"""Reads files of a checkpoint, each once, verifies all that can be verified of one alone, and keeps what they say.

A fault of a file is an answer here, not an error: Spark would meet it too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from peacefs.protocol.errors import CheckpointDamaged, FileNotFound, PeacefsError
from peacefs.protocol.limits import checkpoint_changelog_bytes_max, checkpoint_text_bytes_max, packet_bytes

from .formats.changelog import Changelog, Sealed, parse_changelog
from .formats.checksum_files import Checker, parse_checksum
from .formats.logs import (
    Commit,
    FileLogEntry,
    Offsets,
    QueryMetadata,
    parse_commit,
    parse_file_log,
    parse_offsets,
    parse_query_metadata,
    parse_version,
)
from .formats.operators import Operator, check_schema, parse_operator
from .formats.snapshot import Snapshot, parse_snapshot
from .formats.sst import TableCheck, check_table
from .layout import Layout
from .tree import Entry, FileTree

_Value = TypeVar("_Value")
_GONE = "it is gone: was it deleted just now?"


class Inspection:
    """The files of one checkpoint. Every method raises CheckpointDamaged for a file that is not whole."""

    def __init__(self, tree: FileTree, layout: Layout) -> None:
        self.layout = layout
        self._tree = tree
        self._known: dict[str, tuple[Any, CheckpointDamaged | None]] = {}
        self.files_read = 0
        self.bytes_read = 0

    def of(self, layout: Layout) -> Inspection:
        """An inspection of the same tree with another layout; what was read is not read again."""
        other = Inspection(self._tree, layout)
        other._known = dict(self._known)
        return other

    def query_metadata(self, entry: Entry) -> QueryMetadata:
        return self._once(entry, parse_query_metadata)

    def offsets(self, entry: Entry) -> Offsets:
        return self._once(entry, parse_offsets)

    def commit(self, entry: Entry) -> Commit:
        return self._once(entry, parse_commit)

    def file_log(self, entry: Entry) -> list[FileLogEntry]:
        return self._once(entry, parse_file_log)

    def source_note(self, entry: Entry) -> int:
        """A file that a source keeps and understands alone."""
        return self._once(entry, parse_version)

    def operator(self, entry: Entry) -> Operator:
        return self._once(entry, parse_operator)

    def schema(self, entry: Entry) -> int:
        return self._once(entry, check_schema)

    def changes(self, entry: Entry) -> Changelog | Sealed:
        """Whether it is sealed: then only checksums were verified."""
        if entry.length > checkpoint_changelog_bytes_max:
            self._remembered(entry, lambda: self._read(entry, len))
            return Sealed(f"larger than {checkpoint_changelog_bytes_max >> 20} MiB: too large to be looked into")
        return self._once(entry, parse_changelog)

    def snapshot(self, entry: Entry) -> Snapshot:
        return self._once(entry, parse_snapshot)

    def sst(self, entry: Entry) -> TableCheck:
        """Raises CheckpointDamaged where RocksDB would not open it."""

        def read() -> TableCheck:
            if self._checkers(entry):
                self._read(entry, len)
            try:
                with self._tree.open(entry.path) as source:
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

    def _once(self, entry: Entry, parse: Callable[[bytes], _Value]) -> _Value:
        def read() -> _Value:
            if entry.length > checkpoint_text_bytes_max:
                raise CheckpointDamaged(f"{entry.length} bytes are more than such a file can be")
            pieces: list[bytes] = []
            self._read(entry, pieces.append)
            return parse(b"".join(pieces))

        value: _Value = self._remembered(entry, read)
        return value

    def _remembered(self, entry: Entry, read: Callable[[], Any]) -> Any:
        if entry.path not in self._known:
            try:
                self._known[entry.path] = (read(), None)
            except CheckpointDamaged as fault:
                self._known[entry.path] = (None, fault)
        value, damage = self._known[entry.path]
        if damage is not None:
            raise damage
        return value

    def _read(self, entry: Entry, use: Callable[[bytes], object]) -> None:
        checkers = self._checkers(entry)
        for piece in self._pieces(entry):
            use(piece)
            for checker in checkers:
                checker.update(piece)
        for checker in checkers:
            checker.finish()

    def _pieces(self, entry: Entry) -> Iterator[bytes]:
        try:
            with self._tree.open(entry.path) as source:
                self.files_read += 1
                while piece := source.read(packet_bytes):
                    self.bytes_read += len(piece)
                    yield piece
        except FileNotFound:
            raise CheckpointDamaged(_GONE) from None
        except (PeacefsError, OSError) as fault:
            raise CheckpointDamaged(f"it cannot be read: {fault}") from None

    def _checkers(self, entry: Entry) -> list[Checker]:
        path = self.layout.relative(entry)
        checksums = self.layout.checksum_files(path)
        return [parse_checksum(b"".join(self._pieces(checksum))) for checksum in checksums]
