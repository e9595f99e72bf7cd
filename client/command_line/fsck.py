"""Executes `peacefs fsck`: reports the health of every file, like `hdfs fsck`.

The exit status is that of the worst finding: 0 healthy; 3 replicas missing, in excess or all on one rack; 4
corrupt replicas of chunks that can still be read; 5 data that cannot be read at all. (1 is an error, 2 wrong
usage.)
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from peacefs.protocol.values.fsck_findings import ChunkFindings, ClusterFindings, FileFindings, Finding, Tally

from .listing import print_line
from .session import Session

if TYPE_CHECKING:
    from rich.live import Live

_EXIT_STATUS = {
    None: 0,
    Finding.OVER_REPLICATED: 3,
    Finding.MISPLACED: 3,
    Finding.UNDER_REPLICATED: 3,
    Finding.CORRUPT: 4,
    Finding.MISSING: 5,
}
_UNREADABLE = (Finding.CORRUPT, Finding.MISSING)


@dataclass(frozen=True)
class FsckStyle:
    every_file: bool
    only_corrupt: bool
    as_json: bool


def check(session: Session, text: str, style: FsckStyle) -> int:
    """Check a file or a tree, print the findings, and return the exit status."""
    place = session.place(text)
    total = Tally()
    cluster: ClusterFindings | None = None
    with _progress() as count:
        for page in place.files.inspect(place.path, every_file=style.every_file):
            total.add(page.tally)
            cluster = page.cluster
            if page.files:
                count.hide()
                for file in page.files:
                    for columns in _file_lines(file, style):
                        print_line(*columns)
                sys.stdout.flush()
            count.show(total)
    assert cluster is not None, "the last page has it"
    for line in _ending(place.path, total, cluster, style):
        print_line(line)
    return exit_status(total)


def exit_status(total: Tally) -> int:
    """Return the exit status for the worst finding; see the module."""
    return _EXIT_STATUS[total.worst]


# -- files -----------------------------------------------------------------------------------------


def _file_lines(file: FileFindings, style: FsckStyle) -> Iterator[Sequence[str]]:
    if style.only_corrupt:
        for chunk in file.unhealthy:
            for finding in chunk.findings:
                if finding in _UNREADABLE:
                    yield (
                        [_json("chunk", path=file.path, chunk=chunk.chunk, finding=finding)]
                        if style.as_json
                        else [chunk.chunk, finding, file.path]
                    )
    elif style.as_json:
        yield [_json("file", **msgspec.to_builtins(file))]
    else:
        verdict = "open" if file.is_open else ", ".join(reversed(file.findings)) or "OK"
        chunks = "1 chunk" if file.chunks == 1 else f"{file.chunks} chunks"
        yield [f"{file.path} {file.length} bytes, replication {file.replication}, {chunks}: {verdict}"]
        yield from ([_chunk_line(chunk)] for chunk in file.unhealthy)


def _chunk_line(chunk: ChunkFindings) -> str:
    held = ", ".join(chunk.good) or "no datanode"
    corrupt = f"; corrupt on {', '.join(chunk.corrupt)}" if chunk.corrupt else ""
    return (
        f"  chunk {chunk.chunk} {chunk.length} bytes: {', '.join(reversed(chunk.findings))}: "
        f"{len(chunk.good)} of {chunk.replication} replicas: {held}{corrupt}"
    )


def _json(kind: str, **fields: Any) -> str:
    return msgspec.json.encode({"type": kind, **fields}).decode()


# -- summary ---------------------------------------------------------------------------------------


def _ending(path: str, total: Tally, cluster: ClusterFindings, style: FsckStyle) -> Iterator[str]:
    if style.as_json:
        yield _json(
            "summary",
            path=path,
            status=_status(total),
            exit_status=exit_status(total),
            **msgspec.to_builtins(total),
            cluster=msgspec.to_builtins(cluster),
        )
        return
    if not style.only_corrupt:
        yield from _summary(total, cluster)
    unreadable = total.files_with.get(Finding.MISSING, 0)
    corrupt = total.files_with.get(Finding.CORRUPT, 0)
    if style.only_corrupt:
        yield f"{unreadable} files have missing chunks, {corrupt} have corrupt replicas"
    yield f"The filesystem under path '{path}' is {_status(total)}"


def _status(total: Tally) -> str:
    match total.worst:
        case None:
            return "HEALTHY"
        case Finding.MISSING:
            return "CORRUPT"
        case worst:
            return worst.value.upper()


def _summary(total: Tally, cluster: ClusterFindings) -> Iterator[str]:
    chunks = total.chunks_with
    average = total.length // total.chunks if total.chunks else 0
    wanted = total.replicas + total.lacking_replicas
    yield f"Status: {_status(total)}"
    yield from _rows(
        ("Number of datanodes", cluster.datanodes),
        ("Number of racks", cluster.racks),
        ("Total directories", total.directories),
        ("Total files", f"{total.files} ({total.open_files} open)"),
        ("Total size", f"{total.length} B"),
        ("Total chunks", f"{total.chunks} (average size {average} B)"),
        ("Readable chunks", _share(total.chunks - chunks.get(Finding.MISSING, 0), total.chunks)),
        ("Over-replicated chunks", _share(chunks.get(Finding.OVER_REPLICATED, 0), total.chunks)),
        ("Under-replicated chunks", _share(chunks.get(Finding.UNDER_REPLICATED, 0), total.chunks)),
        ("Misplaced chunks", _share(chunks.get(Finding.MISPLACED, 0), total.chunks)),
        ("Corrupt chunks", _share(chunks.get(Finding.CORRUPT, 0), total.chunks)),
        ("Missing chunks", _share(chunks.get(Finding.MISSING, 0), total.chunks)),
        ("Average replication", f"{total.replicas / total.chunks:.2f}" if total.chunks else "0"),
        ("Corrupt replicas", total.corrupt_replicas),
        ("Missing replicas", _share(total.lacking_replicas, wanted)),
        ("Chunks being written", cluster.chunks_being_written),
        ("Orphaned replicas", f"{cluster.orphaned_replicas} ({cluster.orphaned_bytes} B)"),
    )


def _rows(*rows: tuple[str, object]) -> Iterator[str]:
    width = max(len(name) for name, _value in rows) + 1
    for name, value in rows:
        yield f" {name + ':':<{width}}  {value}"


def _share(count: int, total: int) -> str:
    return f"{count} ({100 * count / total if total else 0:.1f} %)"


# -- progress --------------------------------------------------------------------------------------


class _Count:
    """Shows the progress of the check. This base class shows nothing."""

    def show(self, total: Tally) -> None:
        """Show how much has been checked."""

    def hide(self) -> None:
        """Hide the progress until the next `show`, because other output may go to the same terminal."""


class _LiveCount(_Count):
    """Shows the progress in one line on stderr."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, total: Tally) -> None:
        from rich.text import Text

        self._live.start()
        self._live.update(Text(f"{total.files} files, {total.chunks} chunks inspected"))

    def hide(self) -> None:
        self._live.stop()


@contextlib.contextmanager
def _progress() -> Iterator[_Count]:
    """Yield an object that shows progress on stderr, or nothing if stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield _Count()
        return
    from rich.console import Console
    from rich.live import Live

    # By default, `Live` would redirect stdout to stderr.
    with Live(console=Console(stderr=True), transient=True, redirect_stdout=False, redirect_stderr=False) as live:
        yield _LiveCount(live)
