"""Classify the files of a checkpoint root by their names alone. Pure.

    metadata                                            the query's id
    offsets/N  commits/N                                the plan of batch N; its commit
    sources/S/N  sources/S/N.compact                    the log or note of source S
    state/O/_metadata/metadata  state/O/_metadata/v2/N  metadata of operator O
    state/O/_stateSchema/STORE/N_<uuid>                 its schemas, version 3
    state/O/P[/STORE]/_metadata/schema                  its schema, older versions; only in partition 0
    state/O/P[/STORE]/V.changelog  V_<uuid>.changelog   the changes of batch V-1 (V.delta without RocksDB)
    state/O/P[/STORE]/V.zip  V_<uuid>.zip               the state after batch V-1 (V.snapshot without RocksDB)
    state/O/P[/STORE]/SSTs/<name>-<uuid>.sst            data that snapshots name
    <any>.crc  .<any>.crc                               checksums, of Spark and of Hadoop's local file system
    .<any>.tmp                                          an unfinished file

N is a batch, V the version of a state, P a partition; the default store has no directory of its own.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from .tree import TreeEntry

DEFAULT_STORE = "default"
METADATA, OFFSETS, COMMITS, SOURCES, STATE = "metadata", "offsets", "commits", "sources", "state"
SINK_LOG = "_spark_metadata"
#: Spark's default for the logs of file sources and sinks.
COMPACT_INTERVAL = 10
#: At most this many missing entries are named one by one.
LOG_GAP_MAX = 100
#: Stands for a batch number: operator metadata of version 1 exists once, without a batch.
FIRST_FORM = -1

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_NUMBER = r"(0|[1-9][0-9]{0,17})"
_BATCH = re.compile(_NUMBER)
_LOG_FILE = re.compile(rf"{_NUMBER}(\.compact)?")
_STATE_FILE = re.compile(rf"{_NUMBER}(?:_({_UUID}))?\.(changelog|delta|zip|snapshot)")
_SCHEMA_FILE = re.compile(rf"{_NUMBER}_({_UUID})")
_CHANGES = ("changelog", "delta")


class StoreKey(NamedTuple):
    """A store in a partition of an operator. Each store has its own versions."""

    operator: int
    partition: int
    store: str

    @property
    def directory(self) -> str:
        """The directory of the state store, relative to the checkpoint root."""
        below = "" if self.store == DEFAULT_STORE else f"/{self.store}"
        return f"{STATE}/{self.operator}/{self.partition}{below}"


class StateVersion(NamedTuple):
    """The state after batch `number` - 1. In format 2, `uid` tells several attempts apart."""

    number: int
    uid: str | None

    @property
    def shown(self) -> str:
        return str(self.number) if self.uid is None else f"{self.number}_{self.uid}"


@dataclass(slots=True)
class StoreFiles:
    """The files of one store. `ssts` maps names to files."""

    changes: dict[StateVersion, TreeEntry] = field(default_factory=dict)
    snapshots: dict[StateVersion, TreeEntry] = field(default_factory=dict)
    ssts: dict[str, TreeEntry] = field(default_factory=dict)
    schema: TreeEntry | None = None


@dataclass(slots=True)
class OperatorFiles:
    """The files that describe one operator. `metadata` maps batches, or FIRST_FORM, to files."""

    metadata: dict[int, TreeEntry] = field(default_factory=dict)
    schemas: dict[str, TreeEntry] = field(default_factory=dict)


@dataclass(slots=True)
class LogFiles:
    """The files of a compactible log, of a file source or sink. Some other sources keep a single file 0."""

    deltas: dict[int, TreeEntry] = field(default_factory=dict)
    compacts: dict[int, TreeEntry] = field(default_factory=dict)

    @property
    def latest(self) -> int | None:
        return max((*self.deltas, *self.compacts), default=None)

    @property
    def interval(self) -> int:
        """The number of entries between two compactions, derived from the file names as Spark does."""
        newest = sorted(self.compacts)[-2:]
        if not newest:
            return COMPACT_INTERVAL
        if len(newest) == 2:
            return newest[1] - newest[0]
        count = newest[0] + 1
        divisors = (number for number in range(COMPACT_INTERVAL, count // 2 + 1) if count % number == 0)
        return count if count <= COMPACT_INTERVAL else next(divisors, count)

    def find(self, number: int) -> TreeEntry | None:
        """Return the file in which Spark looks for an entry: the compacted file if that number is a compaction."""
        return (self.compacts if (number + 1) % self.interval == 0 else self.deltas).get(number)

    def name(self, number: int) -> str:
        """Return the file name under which Spark looks for an entry."""
        return f"{number}.compact" if (number + 1) % self.interval == 0 else str(number)

    @property
    def compacted(self) -> int | None:
        """The number of the entry from which a start reads the log, or None for an empty log."""
        latest = self.latest
        return None if latest is None else max(0, (latest + 1) // self.interval * self.interval - 1)

    def up_to(self, number: int) -> LogFiles:
        """Return the log without entries after `number`."""
        return LogFiles(
            {entry: file for entry, file in self.deltas.items() if entry <= number},
            {entry: file for entry, file in self.compacts.items() if entry <= number},
        )

    def needed(self) -> list[tuple[int, TreeEntry | None]]:
        """Return the entries that a start reads, None for a missing one. Stops after `LOG_GAP_MAX` of these."""
        if self.compacted is None or self.latest is None:
            return []
        found: list[tuple[int, TreeEntry | None]] = []
        missing = 0
        for number in range(self.compacted, self.latest + 1):
            entry = self.find(number)
            missing += entry is None
            if missing > LOG_GAP_MAX:
                break
            found.append((number, entry))
        return found


@dataclass(slots=True)
class CheckpointLayout:
    """All files below a checkpoint root, by kind. `by_path` has all of them by path relative to the root."""

    root: str
    by_path: dict[str, TreeEntry] = field(default_factory=dict)
    metadata: TreeEntry | None = None
    offsets: dict[int, TreeEntry] = field(default_factory=dict)
    commits: dict[int, TreeEntry] = field(default_factory=dict)
    sources: dict[int, LogFiles] = field(default_factory=dict)
    operators: dict[int, OperatorFiles] = field(default_factory=dict)
    stores: dict[StoreKey, StoreFiles] = field(default_factory=dict)
    checksums: dict[str, TreeEntry] = field(default_factory=dict)
    temporary: list[TreeEntry] = field(default_factory=list)
    foreign: list[TreeEntry] = field(default_factory=list)
    #: The path that the checkpoint will have, for a staged copy; else its present path.
    named: str = ""

    @property
    def bytes(self) -> int:
        return sum(entry.length for entry in self.by_path.values())

    @property
    def modified_ms(self) -> int:
        return max((entry.modified_ms for entry in self.by_path.values()), default=0)

    @property
    def is_checkpoint(self) -> bool:
        return bool(self.offsets or (self.metadata is not None and not self.foreign))

    def checksum_files(self, path: str) -> list[TreeEntry]:
        """Return the checksum files beside a file. `path` is relative to the root."""
        directory, name = posixpath.split(path)
        beside = (f"{path}.crc", posixpath.join(directory, f".{name}.crc"))
        return [self.checksums[candidate] for candidate in beside if candidate in self.checksums]

    def relative(self, entry: TreeEntry) -> str:
        return entry.path.removeprefix(self.root).lstrip("/")


def is_root(names: Iterable[str]) -> bool:
    """Return whether a directory with these names is a checkpoint root, as far as names can tell."""
    held = set(names)
    return OFFSETS in held and (METADATA in held or COMMITS in held)


def arrange(root: str, entries: Iterable[TreeEntry]) -> CheckpointLayout:
    """Classify the files below `root`."""
    layout = CheckpointLayout(root.rstrip("/"), named=root.rstrip("/"))
    for entry in entries:
        path = layout.relative(entry)
        layout.by_path[path] = entry
        if not _place(layout, path.split("/"), path, entry):
            layout.foreign.append(entry)
    return layout


def _place(layout: CheckpointLayout, parts: list[str], path: str, entry: TreeEntry) -> bool:
    """Add a file to the layout. Return False if it has no place in a checkpoint."""
    name = parts[-1]
    if name.startswith(".") and name.endswith(".tmp"):
        layout.temporary.append(entry)
        return True
    if name.endswith(".crc"):
        layout.checksums[path] = entry
        return True
    if parts == [METADATA]:
        layout.metadata = entry
        return True
    if len(parts) == 2 and parts[0] in (OFFSETS, COMMITS) and _BATCH.fullmatch(name):
        (layout.offsets if parts[0] == OFFSETS else layout.commits)[int(name)] = entry
        return True
    if len(parts) == 3 and parts[0] == SOURCES and _BATCH.fullmatch(parts[1]):
        return place_in_log(layout.sources.setdefault(int(parts[1]), LogFiles()), entry)
    if len(parts) >= 4 and parts[0] == STATE and _BATCH.fullmatch(parts[1]):
        operator = layout.operators.setdefault(int(parts[1]), OperatorFiles())
        if not _BATCH.fullmatch(parts[2]):
            return _place_operator(operator, parts[2:], entry)
        return _place_state(layout, int(parts[1]), int(parts[2]), parts[3:], entry)
    return False


def place_in_log(log: LogFiles, entry: TreeEntry) -> bool:
    """Add a file of a compactible log. Return False if its name is not one of a log file."""
    found = _LOG_FILE.fullmatch(entry.name)
    if found is None:
        return False
    (log.compacts if found[2] else log.deltas)[int(found[1])] = entry
    return True


def _place_operator(operator: OperatorFiles, parts: list[str], entry: TreeEntry) -> bool:
    match parts:
        case ["_metadata", "metadata"]:
            operator.metadata[FIRST_FORM] = entry
        case ["_metadata", "v2", name] if _BATCH.fullmatch(name):
            operator.metadata[int(name)] = entry
        case ["_stateSchema", store, name] if _SCHEMA_FILE.fullmatch(name):
            operator.schemas[f"{store}/{name}"] = entry
        case _:
            return False
    return True


def _place_state(
    layout: CheckpointLayout, operator: int, partition: int, parts: list[str], entry: TreeEntry
) -> bool:
    if parts[0] in ("_metadata", "SSTs", "logs") or len(parts) == 1:
        store = DEFAULT_STORE
    else:
        store, *parts = parts
    files = layout.stores.setdefault(StoreKey(operator, partition, store), StoreFiles())
    match parts:
        case ["_metadata", "schema"]:
            files.schema = entry
        case ["SSTs", name] if name.endswith(".sst"):
            files.ssts[name] = entry
        case [name] if found := _STATE_FILE.fullmatch(name):
            version = StateVersion(int(found[1]), found[2])
            (files.changes if found[3] in _CHANGES else files.snapshots)[version] = entry
        case _:
            return False
    return True
