"""Executes `peacefs du`: bytes used by files and directories."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from .listing import print_line
from .presentation import human_size
from .session import FilePlace, Session


@dataclass(frozen=True)
class UsageStyle:
    summary: bool
    human: bool
    as_json: bool


def show_usage(session: Session, texts: Sequence[str], style: UsageStyle) -> None:
    """Print the bytes of each path, or of each entry in it, without and with replicas, as `hdfs dfs -du`."""
    size = human_size if style.human else str
    for place in session.each(texts):
        with session.errors.about(place.text):
            for counted in [place] if style.summary else _inside(place):
                summary = counted.files.content_summary(counted.path)
                if style.as_json:
                    record = {
                        "path": counted.path,
                        "length": summary.length,
                        "spaceConsumed": summary.space_consumed,
                    }
                    print_line(msgspec.json.encode(record).decode())
                else:
                    print_line(f"{size(summary.length):<12} {size(summary.space_consumed):<12} {counted.text}")


def _inside(place: FilePlace) -> Iterator[FilePlace]:
    """Yield the entries of a directory; a file yields itself."""
    for page in place.files.pages(place.path):
        for entry in page.entries:
            yield place if entry.path == place.path else place.child(entry.name)
