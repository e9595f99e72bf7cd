"""The session of one command: the file systems that its arguments name, and its errors."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from peacefs.client.control.addresses import CoordinatorAddress, is_uri, name_cluster, parse_address, split_uri
from peacefs.client.control.values import FileStatus
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.protocol.errors import BadRequest, FileNotFound

from .errors import CommandErrors
from .globs import expand, is_glob

_FOREIGN_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


@dataclass(frozen=True)
class FilePlace:
    """A path of a file system. `text` is the path as the user wrote it, for messages."""

    files: PeaceFileSystem
    path: str
    text: str

    def __post_init__(self) -> None:
        """Raise BadRequest if the name is not UTF-8."""
        try:
            self.path.encode()
        except UnicodeEncodeError:
            raise BadRequest("the name is not UTF-8; names in peacefs must be") from None

    def child(self, name: str) -> FilePlace:
        return FilePlace(self.files, posixpath.join(self.path, name), posixpath.join(self.text, name))

    @property
    def name(self) -> str:
        return posixpath.basename(self.path)

    def names_below(self, directory: str) -> list[str]:
        """List a directory of the same file system; empty if it does not exist."""
        try:
            return [entry.name for entry in self.files.list(directory) if entry.path != directory]
        except FileNotFound:
            return []

    def status(self) -> FileStatus | None:
        """Return the metadata, or None if the path does not exist."""
        try:
            return self.files.status(self.path)
        except FileNotFound:
            return None


class Session:
    """The state of one command: opens each file system once, and closes all of them at the end.

    Commands resolve their path arguments here, and report errors through `errors`.
    """

    def __init__(self, command: str, coordinator: str) -> None:
        self.errors = CommandErrors(command)
        self._default = parse_address(coordinator)
        name_cluster(self._default)
        self._open: dict[CoordinatorAddress, PeaceFileSystem] = {}

    def place(self, text: str) -> FilePlace:
        """Resolve a path argument: a URI with its own coordinator, or a path, relative to /user/<name>.

        Raises BadRequest, also if `text` is empty: an unset variable in a script must not mean the home directory.
        """
        if not text:
            raise BadRequest("a path cannot be empty; . is the home directory")
        if not is_uri(text) and _FOREIGN_URI.match(text):
            raise BadRequest("not of this file system: a path, or webhdfs://host:port/path, is wanted")
        address, path = split_uri(text) if is_uri(text) else (self._default, text)
        files = self._open.get(address)
        if files is None:
            files = self._open[address] = PeaceFileSystem(address.http)
        absolute = posixpath.normpath(posixpath.join("/user", files.user, path))
        return FilePlace(files, "/" + absolute.lstrip("/"), text)

    def each(self, texts: Sequence[str], *, may_match_nothing: bool = False) -> Iterator[FilePlace]:
        """Resolve path arguments, which may be patterns. A pattern without a match is reported, unless allowed."""
        for text in texts:
            places: list[FilePlace] = []
            with self.errors.about(text):
                try:
                    places = self._expanded(text)
                except FileNotFound:
                    if not may_match_nothing:
                        raise
            yield from places

    def goal_of(self, places: Sequence[FilePlace], text: str) -> tuple[FilePlace | None, bool]:
        """Resolve the target of `places`; return it, and whether it is a directory to put them into.

        Reports an error and returns None if there are several places and the target is not a directory.
        """
        goal = self.place(text)
        status = goal.status()
        into = status is not None and status.is_directory
        if len(places) > 1 and not into:
            self.errors.say(text, "No such file or directory" if status is None else "Is not a directory")
            return None, into
        return goal, into

    def _expanded(self, text: str) -> list[FilePlace]:
        place = self.place(text)
        if not is_glob(place.path):
            return [place]
        found = expand(place.path, place.names_below, place.files.exists)
        if not found:
            raise FileNotFound(text)
        scheme_and_host = text.removesuffix(split_uri(text)[1]) if is_uri(text) else ""
        return [FilePlace(place.files, path, scheme_and_host + path) for path in found]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for files in self._open.values():
            files.close()
