"""Find, summarise and verify checkpoints of a dataflow's units, and of programs that keep paged state.

A dataflow keeps them below one directory. Its `query.json` names the checkpoint that each unit would start from.
Each checkpoint is a directory `<unit>-<sequence>` with an index. A program that uses `peacefs.state` has no
`query.json`: it starts from the latest sound checkpoint.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec
from crc32c import crc32c

from peacefs.protocol.errors import BadRequest, CheckpointDamaged, FileNotFound, PeacefsError

from .tree import FileTree, TreeEntry

if TYPE_CHECKING:
    from peacefs.state.checkpoints.index import Index

RECORD = "query.json"
_INDEX = "index"
_FORMAT = 1
_DIRECTORY = re.compile(r"([^.].*)-(0|[1-9]\d*)")


class RecordedUnit(msgspec.Struct, frozen=True):
    """The checkpoint that a unit would start from, as the controller recorded it."""

    incarnation: int
    sequence: int
    pages_written: int = 0
    pages_referred: int = 0
    bytes_written: int = 0
    pause_us: int = 0
    recorded_ms: int = 0


class RecordedQuery(msgspec.Struct, frozen=True):
    """The contents of `query.json`."""

    format: int
    query: str
    technique: str
    units: dict[str, RecordedUnit]


class UnitSummary(msgspec.Struct, frozen=True):
    """A unit: the checkpoint that it would start from, and all existing ones. Times are milliseconds since 1970.

    `generations` are the checkpoints whose files hold its pages. `recorded` is None without a `query.json`.
    """

    root: str
    query: str | None
    technique: str | None
    unit: str
    sequence: int | None
    sequences: list[int]
    pages: int
    page_bytes: int
    page_sets: list[str]
    generations: list[int]
    files: int
    bytes: int
    modified_ms: int
    recorded: RecordedUnit | None

    @property
    def state_bytes(self) -> int:
        return self.pages * self.page_bytes


class UnitVerdict(msgspec.Struct, frozen=True):
    """The verdict on the checkpoint that a unit would start from; sound if `reason` is None."""

    unit: str
    sequence: int | None
    reason: str | None
    #: If that checkpoint is damaged, the latest sound one.
    last_sound: int | None
    pages_read: int


def is_unit_root(tree: FileTree, root: str) -> bool:
    try:
        return has_units(tree, tree.entries(root))
    except FileNotFound:
        return False


def has_units(tree: FileTree, entries: list[TreeEntry]) -> bool:
    """Return whether a directory with these entries holds checkpoints of units."""
    if any(entry.name == RECORD and not entry.is_directory for entry in entries):
        return True
    named = next((entry for entry in entries if entry.is_directory and _DIRECTORY.fullmatch(entry.name)), None)
    return named is not None and any(entry.name == _INDEX for entry in tree.entries(named.path))


def summarise_units(tree: FileTree, root: str) -> list[UnitSummary]:
    """Summarise every unit below a root. Damaged indexes are left out; `verify_units` reports them."""
    record = _record(tree, root)
    return [_summary(tree, root, unit, sequences, record) for unit, sequences in _stored(tree, root, record)]


def verify_units(tree: FileTree, root: str) -> list[UnitVerdict]:
    """Read every page that each unit would start from, and compare its checksum."""
    record = _record(tree, root)
    return [_verdict(tree, root, unit, sequences, record) for unit, sequences in _stored(tree, root, record)]


# -- finding and summarising --------------------------------------------------------------------------


def _record(tree: FileTree, root: str) -> RecordedQuery | None:
    path = posixpath.join(root, RECORD)
    try:
        with tree.open(path) as source:
            record = msgspec.json.decode(source.read(), type=RecordedQuery)
    except FileNotFound:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CheckpointDamaged(f"{path} cannot be read: {error}") from None
    if record.format != _FORMAT:
        raise BadRequest(f"{path} is of format {record.format}; this version reads format {_FORMAT}")
    return record


def _stored(tree: FileTree, root: str, record: RecordedQuery | None) -> Iterator[tuple[str, list[int]]]:
    """Yield units with the numbers of their existing checkpoints, ascending."""
    found: dict[str, list[int]] = {unit: [] for unit in record.units} if record else {}
    for entry in tree.entries(root):
        named = _DIRECTORY.fullmatch(entry.name)
        if named is not None and entry.is_directory:
            found.setdefault(unquote(named[1]), []).append(int(named[2]))
    for unit in sorted(found):
        yield unit, sorted(found[unit])


def _begins_with(unit: str, sequences: list[int], record: RecordedQuery | None) -> int | None:
    """Return the checkpoint that a unit would start from; None if it would start empty."""
    if record is not None:
        return record.units[unit].sequence if unit in record.units else None
    return sequences[-1] if sequences else None


def _directory(tree: FileTree, root: str, unit: str, sequence: int) -> str:
    """Return the directory of a checkpoint. It contains the unit's name percent-encoded."""
    for entry in tree.entries(root):
        named = _DIRECTORY.fullmatch(entry.name)
        if named is not None and (unquote(named[1]), int(named[2])) == (unit, sequence):
            return entry.path
    raise CheckpointDamaged(f"checkpoint {sequence} of unit {unit} is not there")


def _summary(
    tree: FileTree, root: str, unit: str, sequences: list[int], record: RecordedQuery | None
) -> UnitSummary:
    sequence = _begins_with(unit, sequences, record)
    index, entries = None, list[TreeEntry]()
    if sequence is not None:
        try:
            directory = _directory(tree, root, unit, sequence)
            entries = tree.entries(directory)
            index = _index(tree, directory)
        except CheckpointDamaged:
            pass
    head = index.head if index else None
    return UnitSummary(
        root=root,
        query=record.query if record else None,
        technique=record.technique if record else None,
        unit=unit,
        sequence=sequence,
        sequences=sequences,
        pages=head.pages if head else 0,
        page_bytes=head.page_bytes if head else 0,
        page_sets=[name for name, _ in head.sets] if head else [],
        generations=[number for number, _ in head.generations] if head else [],
        files=len(entries),
        bytes=sum(entry.length for entry in entries),
        modified_ms=max((entry.modified_ms for entry in entries), default=0),
        recorded=record.units.get(unit) if record else None,
    )


# -- verifying ------------------------------------------------------------------------------------------


def _verdict(
    tree: FileTree, root: str, unit: str, sequences: list[int], record: RecordedQuery | None
) -> UnitVerdict:
    wanted = _begins_with(unit, sequences, record)
    if wanted is None:
        return UnitVerdict(unit, None, None, None, 0)
    try:
        return UnitVerdict(unit, wanted, None, None, _verify(tree, root, unit, wanted))
    except (CheckpointDamaged, FileNotFound) as error:
        reason = error.message
    for sequence in reversed([each for each in sequences if each < wanted]):
        try:
            return UnitVerdict(unit, wanted, reason, sequence, _verify(tree, root, unit, sequence))
        except PeacefsError:
            continue
    return UnitVerdict(unit, wanted, reason, None, 0)


def _verify(tree: FileTree, root: str, unit: str, sequence: int) -> int:
    """Verify one checkpoint and return the number of pages. Raises CheckpointDamaged."""
    directory = _directory(tree, root, unit, sequence)
    index = _index(tree, directory)
    size = index.head.page_bytes
    for number, (stored_in, count) in enumerate(index.head.generations):
        here = index.generations == number
        sums = dict(zip(index.positions[here].tolist(), index.sums[here].tolist(), strict=True))
        pages = _pages(tree, directory, sequence, stored_in, size)
        read = 0
        for place, page in enumerate(pages):
            read += 1
            if place in sums and crc32c(page) != sums[place]:
                raise CheckpointDamaged(
                    f"{directory}: page {place} of those stored in checkpoint {stored_in} fails its checksum"
                )
        if read != count:
            raise CheckpointDamaged(f"{directory} has {read} pages of checkpoint {stored_in}, and not {count}")
    return int(index.head.pages)


def _pages(tree: FileTree, directory: str, sequence: int, stored_in: int, size: int) -> Iterator[bytes]:
    """Yield the pages of checkpoint `stored_in` that this checkpoint uses, ordered by their positions."""
    own = r"part-\d+|" if sequence == stored_in else ""
    wanted = re.compile(rf"{own}pages-{stored_in}(\.part-\d+)?")
    left = b""
    for entry in sorted(tree.entries(directory), key=lambda entry: entry.name):
        if not wanted.fullmatch(entry.name):
            continue
        with tree.open(entry.path) as source:
            while data := source.read(size - len(left)):
                left += data
                if len(left) == size:
                    yield left
                    left = b""
    if left:
        raise CheckpointDamaged(f"{directory}: pages of checkpoint {stored_in} end in the middle of one")


def _index(tree: FileTree, directory: str) -> Index:
    """Read an index. Imported late, because NumPy belongs to the extra `state`."""
    try:
        from peacefs.state.checkpoints import index as indexes
    except ImportError as error:
        raise BadRequest(f"pages of checkpoints need {error.name}: pip install 'peacefs[state]'") from None
    path = posixpath.join(directory, _INDEX)
    try:
        with tree.open(path) as source:
            return indexes.decode(source.read(), path)
    except FileNotFound:
        raise CheckpointDamaged(f"{path} is not there") from None
