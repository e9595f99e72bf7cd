"""Checks a store: SQLite's own check of every page, then the invariants of our tables.

Reads one state of the store and changes nothing, even while a coordinator uses it. Meanwhile commits make the
store's log grow.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import apsw

from peacefs.coordinator.metadata.model import ROOT
from peacefs.coordinator.metadata.tables import DIRECTORY_KIND, FILE_KIND, LIVE
from peacefs.protocol.ids import EPOCH_MAX, first_of_epoch

from . import file as metadata_file
from . import lost_commits, row_digest
from .connections import DamagedPage, connect_read_only
from .log_state import numbers_of

check_examples_max: Final = 5


@dataclass(frozen=True)
class Problem:
    """A broken invariant: the number of violations, and some examples."""

    name: str
    found: int
    examples: list[str]


@dataclass
class Findings:
    """The findings of a check. `files`, `directories` and `chunks` are None if the store is unreadable.

    The last `commits_behind` commits are not checked, because they are in the log and not in the image yet.
    """

    problems: list[Problem] = field(default_factory=list)
    files: int | None = None
    directories: int | None = None
    chunks: int | None = None
    commits_behind: int = 0


class _Invariant(NamedTuple):
    """An invariant. The query `broken` returns one row with a text for each violation."""

    name: str
    broken: str


_INVARIANTS = (
    _Invariant(
        "there is one root, a directory without a name",
        f"""
        SELECT 'root is missing' WHERE NOT EXISTS
            (SELECT 1 FROM inode WHERE inode = {ROOT} AND to_tx = {LIVE} AND kind = {DIRECTORY_KIND})
        UNION ALL SELECT 'root is called ' || name || ' in ' || parent FROM entry
            WHERE inode = {ROOT} AND to_tx = {LIVE}""",
    ),
    _Invariant(
        "a name leads to a file or directory",
        f"""
        SELECT name || ' in ' || parent FROM entry e WHERE to_tx = {LIVE} AND NOT EXISTS
            (SELECT 1 FROM inode i WHERE i.inode = e.inode AND i.to_tx = {LIVE})""",
    ),
    _Invariant(
        "a name is in a directory",
        f"""
        SELECT name || ' in ' || parent FROM entry e WHERE to_tx = {LIVE} AND NOT EXISTS
            (SELECT 1 FROM inode i WHERE i.inode = e.parent AND i.to_tx = {LIVE} AND i.kind = {DIRECTORY_KIND})""",
    ),
    _Invariant(
        "a file or directory has one name",
        f"SELECT inode FROM entry WHERE to_tx = {LIVE} GROUP BY inode HAVING count(*) > 1",
    ),
    _Invariant(
        "every file and directory is found from the root, or waits to be reclaimed",
        f"""
        WITH RECURSIVE reached (inode) AS (
            SELECT {ROOT} UNION SELECT inode FROM discarded UNION SELECT inode FROM staged
            UNION SELECT e.inode FROM reached r CROSS JOIN entry e ON e.parent = r.inode AND e.to_tx = {LIVE})
        SELECT inode FROM inode WHERE to_tx = {LIVE} AND inode NOT IN reached""",
    ),
    _Invariant(
        "what waits to be reclaimed is there and has no name",
        f"""
        SELECT inode FROM discarded d WHERE NOT EXISTS
            (SELECT 1 FROM inode i WHERE i.inode = d.inode AND i.to_tx = {LIVE})
        UNION ALL SELECT inode FROM entry WHERE to_tx = {LIVE} AND inode IN (SELECT inode FROM discarded)""",
    ),
    _Invariant(
        "a chunk is counted as often as it is referred to",
        """
        SELECT c.chunk || ': counted ' || c.referrers || ', referred to ' || coalesce(r.found, 0)
        FROM chunk c LEFT JOIN (SELECT chunk, count(*) AS found FROM reference GROUP BY chunk) r USING (chunk)
        WHERE c.referrers <> coalesce(r.found, 0) OR c.referrers < 1""",
    ),
    _Invariant(
        "a reference leads to a chunk",
        "SELECT inode || ' to ' || chunk FROM reference WHERE chunk NOT IN (SELECT chunk FROM chunk)",
    ),
    _Invariant(
        "only files refer to chunks",
        f"""
        SELECT r.inode || ' to ' || r.chunk FROM reference r WHERE r.to_tx = {LIVE} AND NOT EXISTS
            (SELECT 1 FROM inode i WHERE i.inode = r.inode AND i.to_tx = {LIVE} AND i.kind = {FILE_KIND})""",
    ),
    _Invariant(
        "a lease is of a file",
        f"""
        SELECT l.inode || ' by ' || l.holder FROM lease l WHERE NOT EXISTS
            (SELECT 1 FROM inode i WHERE i.inode = l.inode AND i.to_tx = {LIVE} AND i.kind = {FILE_KIND})""",
    ),
    _Invariant(
        "a run is of a directory",
        f"""
        SELECT r.directory || ' of ' || r.user FROM run r WHERE NOT EXISTS
            (SELECT 1 FROM inode i
             WHERE i.inode = r.directory AND i.to_tx = {LIVE} AND i.kind = {DIRECTORY_KIND})""",
    ),
    _Invariant(
        "an extended attribute is of a file or directory",
        f"""
        SELECT a.inode || ': ' || a.name FROM attribute a WHERE a.to_tx = {LIVE} AND NOT EXISTS
            (SELECT 1 FROM inode i WHERE i.inode = a.inode AND i.to_tx = {LIVE})""",
    ),
    _Invariant(
        "a file uses no more of a chunk than there is",
        """
        SELECT r.inode || ' to ' || r.chunk || ': ' || r.length || ' of ' || c.length
        FROM reference r JOIN chunk c USING (chunk) WHERE r.length < 0 OR r.length > c.length""",
    ),
    _Invariant(
        "a file is as long as its chunks together",
        f"""
        SELECT i.inode || ': ' || i.length || ', chunks ' || coalesce(r.found, 0) FROM inode i LEFT JOIN
            (SELECT inode, sum(length) AS found FROM reference WHERE to_tx = {LIVE} GROUP BY inode) r USING (inode)
        WHERE i.to_tx = {LIVE} AND i.kind = {FILE_KIND} AND i.length <> coalesce(r.found, 0)
            AND i.inode NOT IN (SELECT inode FROM discarded)""",
    ),
    _Invariant(
        "a directory with a quota holds what is kept of it",
        f"""
        SELECT q.directory || ': kept ' || q.names || ' names, ' || q.bytes || ' bytes' FROM quota q
        WHERE (q.names_max IS NOT NULL OR q.bytes_max IS NOT NULL) AND EXISTS (
            WITH RECURSIVE up (inode) AS (
                SELECT q.directory UNION ALL
                SELECT e.parent FROM up JOIN entry e ON e.inode = up.inode AND e.to_tx = {LIVE})
            SELECT 1 FROM up WHERE inode = {ROOT})
        AND (q.names, q.bytes) <> (
            WITH RECURSIVE below (inode, bytes) AS (
                SELECT inode, length * replication FROM inode WHERE inode = q.directory AND to_tx = {LIVE}
                UNION ALL
                SELECT i.inode, i.length * i.replication FROM below b
                    CROSS JOIN entry e ON e.parent = b.inode AND e.to_tx = {LIVE}
                    CROSS JOIN inode i ON i.inode = e.inode AND i.to_tx = {LIVE})
            SELECT count(*), coalesce(sum(bytes), 0) FROM below)""",
    ),
)

_STEPS = len(_INVARIANTS) + 3


def check(path: Path, begun: Callable[[str, int, int], None]) -> Findings:
    """Check everything. Before each check, call `begun` with its name, its number and the number of checks."""
    metadata_file.verify_identity(path)
    with contextlib.closing(connect_read_only(path)) as connection:
        begun("pages and indexes", 1, _STEPS)
        findings = Findings()
        _check_pages(connection, findings)
        if findings.problems:
            return findings
        loss = lost_commits.find_behind_record(path)
        try:
            connection.execute("BEGIN")
            begun("rows and their digest", 2, _STEPS)
            fault = row_digest.difference(connection)
            findings = check_tables(connection, begun)
            _note(findings, "all rows are what was committed", [fault] if fault else [])
            connection.execute("COMMIT")
            findings.commits_behind = numbers_of(path).behind
        except (apsw.Error, DamagedPage, UnicodeDecodeError) as error:
            findings.problems.append(Problem("the tables can be read", 1, [str(error)]))
    _note(findings, "all that was acknowledged is there", [loss] if loss else [])
    return findings


def check_tables(connection: apsw.Connection, begun: Callable[[str, int, int], None]) -> Findings:
    """Check the tables, in the state that the connection sees. Raises apsw.Error."""
    findings = Findings()
    begun("numbers", 3, _STEPS)
    _check_numbers(connection, findings)
    for number, invariant in enumerate(_INVARIANTS, start=4):
        begun(invariant.name, number, _STEPS)
        _note(findings, invariant.name, [row[0] for row in connection.execute(invariant.broken)])
    _count(connection, findings)
    return findings


def _check_pages(connection: apsw.Connection, findings: Findings) -> None:
    name = "pages and indexes are whole"
    try:
        verdicts = [row[0] for row in connection.execute("PRAGMA integrity_check")]
    except (apsw.Error, DamagedPage) as error:
        verdicts = [str(error)]
    _note(findings, name, [] if verdicts == ["ok"] else verdicts)


def _check_numbers(connection: apsw.Connection, findings: Findings) -> None:
    """Check that no number is above the epoch, or it would be assigned again.

    The floor must not be above the epoch either, or new chunks would be collected as garbage.
    """
    meta = dict(connection.execute("SELECT key, value FROM meta"))
    last_tx = connection.execute("SELECT max(from_tx) FROM inode").get or 0
    highest = [
        ("inode", connection.execute("SELECT max(inode) FROM inode").get or 0),
        ("chunk", connection.execute("SELECT max(chunk) FROM chunk").get or 0),
        ("version", connection.execute("SELECT max(version) FROM chunk").get or 0),
        ("floor", meta["floor"]),
    ]
    bound = first_of_epoch(min(meta["epoch"] + 1, EPOCH_MAX))
    broken = [f"{what} {number} in epoch {meta['epoch']}" for what, number in highest if number >= bound]
    if last_tx > meta["last_tx"]:
        broken.append(f"transaction {last_tx} after the last, {meta['last_tx']}")
    _note(findings, "no number is above the epoch, no transaction above the last", broken)


def _count(connection: apsw.Connection, findings: Findings) -> None:
    kinds = dict(connection.execute(f"SELECT kind, count(*) FROM inode WHERE to_tx = {LIVE} GROUP BY kind"))
    findings.files, findings.directories = kinds.get(FILE_KIND, 0), kinds.get(DIRECTORY_KIND, 0)
    findings.chunks = connection.execute("SELECT count(*) FROM chunk").get


def _note(findings: Findings, name: str, broken: Sequence[object]) -> None:
    if broken:
        findings.problems.append(Problem(name, len(broken), [str(one) for one in broken[:check_examples_max]]))
