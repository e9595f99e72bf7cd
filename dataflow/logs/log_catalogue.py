"""Find the logs below a directory of a cluster or of this machine, and summarise them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from peacefs.client.command_line.session import FilePlace, Session
from peacefs.protocol.errors import BadRequest, FileNotFound
from peacefs.protocol.limits import checkpoint_entries_max

from .directory_segments import DirectorySegments
from .log_place import local_directory, stream_of
from .log_reader import LogReader
from .segments import SegmentStore, stream_name

_SEGMENT = re.compile(r"\d{20}\.log")


@dataclass(frozen=True)
class LogAddress:
    """The address of a log, as given to a command or found by it."""

    text: str
    place: FilePlace | Path

    @contextmanager
    def open(self) -> Iterator[tuple[SegmentStore, str]]:
        with ExitStack() as stack:
            if isinstance(self.place, Path):
                store: SegmentStore = stack.enter_context(DirectorySegments(self.place.parent))
                name = stream_name(self.place.name)
            else:
                store, name = stack.enter_context(stream_of(self.place.files, self.place.path))
            yield store, name


class LogSummary(msgspec.Struct, frozen=True):
    """The summary of a log. `torn_bytes` follow its last complete record."""

    path: str
    first: int
    last: int
    segments: int
    bytes: int
    torn_bytes: int
    time: str | None
    columns: dict[str, str]


def log_address(session: Session, text: str) -> LogAddress:
    """Parse the address of a log. Raises BadRequest."""
    local = local_directory(text)
    return LogAddress(text, local if local is not None else session.place(text))


def require_log(address: LogAddress, store: SegmentStore, stream: str) -> None:
    """Raise FileNotFound if there is no log."""
    if not store.segments(stream):
        raise FileNotFound(
            f"there is no stream log at {address.text}: `peacefs stream ls` lists the existing ones"
        )


def find_logs(session: Session, text: str) -> Iterator[LogAddress]:
    """Yield every log at or below an address. Raises FileNotFound, and BadRequest if the tree is too large."""
    pending, seen = [log_address(session, text)], 0
    while pending:
        address = pending.pop()
        files, directories = _entries(address)
        seen += len(files) + len(directories)
        if seen > checkpoint_entries_max:
            raise BadRequest(f"{text} holds more than {checkpoint_entries_max} files and directories")
        if any(_SEGMENT.fullmatch(name) for name in files):
            yield address
        else:
            pending += [_below(address, name) for name in reversed(directories) if not name.startswith(".")]


def summarise(address: LogAddress) -> LogSummary:
    """Summarise a log. Raises LogDamaged."""
    with address.open() as (store, stream):
        reader = LogReader(store, stream)
        segments = store.segments(stream)
        end, kind = reader.end(), reader.type()
        return LogSummary(
            address.text,
            end.first,
            end.place.number,
            len(segments),
            sum(length for _, length in segments),
            end.torn_bytes,
            kind.time if kind else None,
            {field.name: str(field.type) for field in kind.schema} if kind else {},
        )


def _entries(address: LogAddress) -> tuple[Sequence[str], Sequence[str]]:
    """Return the names of the files and of the directories."""
    if isinstance(address.place, Path):
        if not address.place.exists():
            raise FileNotFound(address.text)
        if not address.place.is_dir():
            return [], []
        found = sorted(address.place.iterdir())
        return [each.name for each in found if each.is_file()], [each.name for each in found if each.is_dir()]
    entries = [entry for entry in address.place.files.list(address.place.path) if entry.path != address.place.path]
    return (
        [entry.name for entry in entries if not entry.is_directory],
        [entry.name for entry in entries if entry.is_directory],
    )


def _below(address: LogAddress, name: str) -> LogAddress:
    if isinstance(address.place, Path):
        return LogAddress(f"{address.text.rstrip('/')}/{name}", address.place / name)
    child = address.place.child(name)
    return LogAddress(child.text, child)
