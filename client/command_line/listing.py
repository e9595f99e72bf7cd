"""Executes `peacefs ls` and `peacefs stat`: lists entries and their metadata."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from peacefs.client.control.values import FileStatus

from .descent import Descent, descend
from .presentation import (
    as_record,
    format_stat,
    human_size,
    local_minute,
    permission_string,
    printable,
)
from .session import FilePlace, Session


@dataclass(frozen=True)
class ListStyle:
    recursive: bool
    human: bool
    as_json: bool
    directory: bool = False


def list_places(session: Session, texts: Sequence[str], style: ListStyle) -> None:
    """List each path, page by page, so that large directories need no more memory."""
    for place in session.each(texts):
        with session.errors.about(place.text):
            if style.directory:
                for line in _lines(place, [place.files.status(place.path)], style):
                    print_line(line)
            else:
                descend(_list(session, place, style, top=True))


def _list(session: Session, place: FilePlace, style: ListStyle, *, top: bool) -> Descent:
    headed = not top or style.recursive or style.as_json
    for page in place.files.pages(place.path):
        # A file lists itself, and gets no "Found" line.
        if not headed and page.entries and page.entries[0].path != place.path:
            print_line(f"Found {len(page.entries) + page.remaining} items")
        headed = True
        for status, line in zip(page.entries, _lines(place, page.entries, style), strict=True):
            print_line(line)
            if style.recursive and status.is_directory:
                child = place.child(status.name)
                with session.errors.about(child.text):
                    yield _list(session, child, style, top=False)


def _lines(place: FilePlace, entries: Sequence[FileStatus], style: ListStyle) -> Iterator[str]:
    """Yield the lines of a page. Columns are as wide as needed, and at least as wide as in `hdfs dfs -ls`."""
    if style.as_json:
        for status in entries:
            yield msgspec.json.encode(as_record(status)).decode()
        return
    sizes = [human_size(status.length) if style.human else str(status.length) for status in entries]
    owner_width = max((len(status.owner) for status in entries), default=0)
    group_width = max((len(status.group) for status in entries), default=0)
    size_width = max((10, *map(len, sizes)))
    for status, size in zip(entries, sizes, strict=True):
        replication = "-" if status.is_directory else str(status.replication)
        shown = place.text if status.path == place.path else place.child(status.name).text
        yield (
            f"{permission_string(status)} {replication:>3} {status.owner:<{owner_width}} "
            f"{status.group:<{group_width}} {size:>{size_width}} {local_minute(status.modified_ms)} {shown}"
        )


def show_status(session: Session, texts: Sequence[str], template: str, *, as_json: bool) -> None:
    """Print one line per path."""
    for place in session.each(texts):
        with session.errors.about(place.text):
            status = place.files.status(place.path)
            print_line(
                msgspec.json.encode(as_record(status)).decode() if as_json else format_stat(template, status)
            )


def print_line(*columns: str) -> None:
    """Print a line to stdout, with tabs between columns. Control characters in names are escaped."""
    sys.stdout.write("\t".join(map(printable, columns)) + "\n")
