"""The matrix of checkpoints: kinds of query, ways to keep state, events and Spark versions, each declared once.

What a query must have given out in the end is an SQL statement, which DuckDB runs over the whole input at once.
Nothing of peacefs is imported, and nothing of Spark.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from .matrix_queries import GAP_S, WINDOW_S, WITHIN_S

#: Rows of the last input, which moves the watermark past everything else, have this second.
CLOSING_S = 100_000
#: The second of the first row. To Spark, rows of second 0 are late, because watermarks begin there.
_FIRST_S = 600
Row = tuple[object, ...]
Version = tuple[int, int]


@dataclass(frozen=True)
class Kind:
    """A query of `matrix_queries`, and its answer in SQL over `lines(key, number, second)`.

    `keys`: so many columns say which earlier row a row replaces; 0 if rows are added. `since`: Spark's version.
    """

    answer: str
    keys: int = 0
    since: Version = (3, 5)
    needs_rocksdb: bool = False
    stateful: bool = True


_COUNTS = f"""SELECT key, second // {WINDOW_S} * {WINDOW_S} AS start, count(*) FROM {{rows}}
    WHERE second < {CLOSING_S} GROUP BY ALL"""
_RIGHT = "(SELECT key AS its, second AS other FROM lines WHERE number = 0)"
_LEFT = "(SELECT key, second FROM lines WHERE number <> 0)"
_CLOSE = f"key = its AND other BETWEEN second AND second + {WITHIN_S}"
_EARLY = f"coalesce(second, 0) < {CLOSING_S} AND coalesce(other, 0) < {CLOSING_S}"
_PORTRAIT = (
    """SELECT key, count(*), count(*), sum(second)::BIGINT, count(DISTINCT number) FROM lines GROUP BY key"""
)


def _joined(how: str) -> str:
    return f"SELECT key, second, its, other FROM {_LEFT} {how} JOIN {_RIGHT} ON {_CLOSE} WHERE {_EARLY}"


KINDS = {
    "copy": Kind("SELECT key, second FROM lines WHERE number = 0", stateful=False),
    "aggregation": Kind("SELECT key, count(*), sum(second)::BIGINT FROM lines GROUP BY key", 1),
    "windows": Kind(_COUNTS.format(rows="lines")),
    "deduplication": Kind("SELECT DISTINCT key, number FROM lines"),
    "deduplication within watermark": Kind("SELECT DISTINCT key, number, second // 60 FROM lines"),
    "join": Kind(_joined("INNER")),
    "join, left outer": Kind(_joined("LEFT")),
    "join, right outer": Kind(_joined("RIGHT")),
    "join, full outer": Kind(_joined("FULL")),
    "join, left semi": Kind(f"SELECT key, second FROM {_LEFT} SEMI JOIN {_RIGHT} ON {_CLOSE}"),
    "two operators": Kind(_COUNTS.format(rows="(SELECT DISTINCT * FROM lines)")),
    "sessions": Kind(
        f"""SELECT key, min(second), count(*) FROM (
            SELECT *, sum(begins) OVER (PARTITION BY key ORDER BY second, place) AS session FROM (
            SELECT *, CASE WHEN second - lag(second) OVER (PARTITION BY key ORDER BY second, place) < {GAP_S}
                THEN 0 ELSE 1 END AS begins
            FROM (SELECT *, row_number() OVER () AS place FROM lines)))
        WHERE second < {CLOSING_S} GROUP BY key, session"""
    ),
    "applyInPandasWithState": Kind("SELECT key, count(*), sum(second)::BIGINT FROM lines GROUP BY key", 1),
    "transformWithStateInPandas": Kind(_PORTRAIT, 1, (4, 0), needs_rocksdb=True),
    "transformWithState": Kind(_PORTRAIT, 1, (4, 1), needs_rocksdb=True),
    "transformWithState, timers": Kind(_COUNTS.format(rows="lines"), 0, (4, 1), needs_rocksdb=True),
    "transformWithState, JVM": Kind(_PORTRAIT, 1, (4, 0), needs_rocksdb=True),
}

_STREAMING = "spark.sql.streaming."
_STORE = _STREAMING + "stateStore."
_PROVIDER = "org.apache.spark.sql.execution.streaming.state."
_ROCKSDB = _PROVIDER + "RocksDBStateStoreProvider"
_RECORDS = _PROVIDER + "HDFSBackedStateStoreProvider"
ALWAYS = {
    "spark.sql.shuffle.partitions": "2",
    _STORE + "minDeltasForSnapshot": "2",
    _STORE + "maintenanceInterval": "2s",
}


@dataclass(frozen=True)
class Layout:
    """A way to keep state: settings of a session, for the kinds whose name begins with `only`."""

    conf: dict[str, str]
    since: Version = (3, 5)
    rocksdb: bool = True
    only: str = ""


def _rocksdb(changes: bool, form: int, **more: str) -> dict[str, str]:
    return {
        _STORE + "providerClass": _ROCKSDB,
        _STORE + "rocksdb.changelogCheckpointing.enabled": str(changes).lower(),
        _STORE + "checkpointFormatVersion": str(form),
        **{_STREAMING + key.replace("_", "."): value for key, value in more.items()},
    }


LAYOUTS = {
    "rocksdb": Layout(_rocksdb(True, 1)),
    "records": Layout(
        {
            _STORE + "providerClass": _RECORDS,
            _STORE + "checkpointFormatVersion": "1",
        },
        rocksdb=False,
    ),
    "rocksdb, no changelogs": Layout(_rocksdb(False, 1)),
    "rocksdb, format 2": Layout(_rocksdb(True, 2), (4, 0)),
    "rocksdb, format 2, no changelogs": Layout(_rocksdb(False, 2), (4, 0)),
    "rocksdb, row checksums": Layout(_rocksdb(True, 1, stateStore_rowChecksum_enabled="true"), (4, 1)),
    "rocksdb, no file checksums": Layout(_rocksdb(True, 1, checkpoint_fileChecksum_enabled="false"), (4, 1)),
    "rocksdb, join format 3": Layout(_rocksdb(True, 1, join_stateFormatVersion="3"), (4, 1), only="join"),
    "rocksdb, avro": Layout(
        _rocksdb(True, 1, stateStore_encodingFormat="avro"), (4, 0), only="transformWithState"
    ),
}


@dataclass(frozen=True)
class Event:
    """What happens to a checkpoint whose driver was killed in mid-state, before Spark goes on."""

    since: Version = (3, 5)
    stateful: bool = False


EVENTS = {
    "killed": Event(),
    "upgraded": Event((4, 0)),
    "forked": Event(),
    "imported": Event(),
    "rolled back": Event(),
    "pruned": Event(),
    "repartitioned": Event((4, 2), stateful=True),
    "repartitioned, rolled back": Event((4, 2), stateful=True),
}


@dataclass(frozen=True, order=True)
class Cell:
    kind: str
    layout: str

    @property
    def name(self) -> str:
        return f"{self.kind} {self.layout}".replace(",", "").replace(" ", "-")


def cells(version: Version, layouts: list[str] | None = None) -> list[Cell]:
    """Return the kinds and layouts that a Spark has."""
    found = []
    for kind_name, kind in KINDS.items():
        for layout_name, layout in LAYOUTS.items():
            fits = layout.only == "" or kind_name.startswith(layout.only)
            fits = fits and (layout.rocksdb or not kind.needs_rocksdb)
            # A query without state is the same in every layout.
            fits = fits and (kind.stateful or layout_name == "rocksdb")
            if fits and max(kind.since, layout.since) <= version and (layouts is None or layout_name in layouts):
                found.append(Cell(kind_name, layout_name))
    return found


@dataclass(frozen=True)
class Known:
    """A fault of Spark's own: in cells whose names begin with `kind` and `layout`, from `since` to `until`."""

    why: str
    event: str = ""
    kind: str = ""
    layout: str = ""
    since: Version = (3, 5)
    until: Version = (99, 0)

    def matches(self, version: Version, cell: Cell, event: str) -> bool:
        named = event.startswith(self.event) and cell.kind.startswith(self.kind)
        return named and cell.layout.startswith(self.layout) and self.since <= version <= self.until


KNOWN: list[Known] = []


@dataclass
class Input:
    """Text files of lines `key number second`, a file a batch."""

    directory: Path
    lines: list[tuple[str, int, int]] = field(default_factory=list)
    parts: int = 0

    def put(self, parts: int) -> None:
        for part in range(self.parts, self.parts + parts):
            begin = _FIRST_S + 60 * part
            rows = [(f"k{row // 2 % 3}", (row + part) % 2, begin + 3 * row) for row in range(12)]
            rows.append((f"k{part % 3}", 2 + part % 2, begin + 58))
            if part:
                # The last row of the part before comes again, to a state that exists.
                rows.append((f"k{(part - 1) % 3}", 2 + (part - 1) % 2, begin - 2))
            self._write(part, rows)
        self.parts += parts

    def close(self) -> None:
        self._write(self.parts, [("k0", 0, CLOSING_S), ("k1", 1, CLOSING_S)])
        self.parts += 1

    def _write(self, part: int, rows: list[tuple[str, int, int]]) -> None:
        self.directory.mkdir(exist_ok=True)
        unfinished, path = self.directory / f".{part}", self.directory / f"{part}.txt"
        unfinished.write_text("".join(f"{key} {number} {second}\n" for key, number, second in rows))
        os.utime(unfinished, (part + 1, part + 1))
        unfinished.rename(path)
        self.lines += rows

    def answer(self, kind: str) -> list[Row]:
        """Return the rows that a query must have given out, by DuckDB."""
        with duckdb.connect() as db:
            db.execute("CREATE TABLE lines (key VARCHAR, number BIGINT, second BIGINT)")
            db.executemany("INSERT INTO lines VALUES (?, ?, ?)", self.lines)
            return ordered(db.execute(KINDS[kind].answer).fetchall())


def sink_rows(output: Path, kind: str) -> list[Row]:
    """Return what a reader of the sink has: rows of all batches, later ones in the place of earlier ones."""
    rows: dict[object, Row] = {}
    for path in sorted(output.glob("[0-9]*.json"), key=lambda path: int(path.stem)):
        for place, row in enumerate(json.loads(path.read_text())):
            rows[tuple(row[: KINDS[kind].keys]) or (path.stem, place)] = tuple(row)
    return ordered(list(rows.values()))


def ordered(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: [(value is None, value if value is not None else 0) for value in row])
