"""Paths of the namespace: parsed once at the edge, then handed on as components.

Paths are normalised as Hadoop's `Path` does: repeated slashes count as one, and a trailing slash is ignored. `.`
and `..` are refused. New names must obey HDFS's stricter rules: see `check_creatable` and `check_name_length`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from peacefs.coordinator.limits import path_characters_max
from peacefs.protocol.errors import BadRequest, NameTooLong, PathLimitExceeded
from peacefs.protocol.values.query_runs import component_of, run_of

# HDFS: dfs.namenode.fs-limits.max-component-length (255, counted in UTF-8 bytes) and MAX_PATH_LENGTH.
name_bytes_max: Final = 255
path_depth_max: Final = 1000


#: HDFS's reserved names. Below `.snapshot`, a directory shows its snapshots.
SNAPSHOTS_NAME: Final = ".snapshot"
_RESERVED_AT_ROOT = ".reserved"


class Writer(NamedTuple):
    """The run that a path was given to, and the run's directory: the first `depth` components."""

    depth: int
    run: int


class NamespacePath(NamedTuple):
    """An absolute path; the root has no components. `above` is shown before it: the path of a snapshot.

    A component that names a run is not part of the components: it is the path's `writer`.
    """

    components: tuple[str, ...]
    above: str = ""
    writer: Writer | None = None

    def __str__(self) -> str:
        shown = self.components
        if self.writer is not None:
            depth, run = self.writer
            shown = (*shown[:depth], component_of(run), *shown[depth:])
        if self.above and not shown:
            return self.above
        return self.above + "/" + "/".join(shown)

    @property
    def is_root(self) -> bool:
        return not self.components

    @property
    def name(self) -> str:
        """The last component; empty for the root."""
        return self.components[-1] if self.components else ""

    def child(self, name: str) -> NamespacePath:
        return self._replace(components=(*self.components, name))

    def is_under(self, other: NamespacePath) -> bool:
        """Return whether this path is below `other`, and not `other` itself."""
        depth = len(other.components)
        return len(self.components) > depth and self.components[:depth] == other.components

    def ancestor(self, depth: int) -> NamespacePath:
        """Return the path of the first `depth` components."""
        writer = self.writer if self.writer is not None and self.writer.depth <= depth else None
        return self._replace(components=self.components[:depth], writer=writer)


def parse_path(text: str) -> NamespacePath:
    """Parse a path. Raises BadRequest if it is none, PathLimitExceeded if it is too long or too deep."""
    if not text.startswith("/"):
        raise BadRequest(f"Invalid path name {text!r}: it is not absolute")
    if len(text) > path_characters_max:
        raise _too_long(f"{len(text)} characters")
    if "\0" in text or not (text.isascii() or _is_unicode(text)):
        raise BadRequest(f"Invalid path name {text!r}: it holds what no name can hold")
    components = tuple(filter(None, text.split("/")))
    if len(components) > path_depth_max:
        raise _too_long(f"{len(components)} levels")
    if "." in components or ".." in components:
        raise BadRequest(f"Invalid path name {text!r}: '.' and '..' are not resolved here")
    if "/.run-" in text:
        return _written_by_run(text, components)
    return NamespacePath(components)


def _written_by_run(text: str, components: tuple[str, ...]) -> NamespacePath:
    """Parse a path that may name a run."""
    runs = [Writer(depth, run) for depth, name in enumerate(components) if (run := run_of(name)) is not None]
    if len(runs) > 1:
        raise BadRequest(f"Invalid path name {text!r}: it names {len(runs)} runs; a path is given to one")
    named = tuple(name for name in components if run_of(name) is None)
    return NamespacePath(named, writer=runs[0] if runs else None)


def _too_long(what: str) -> PathLimitExceeded:
    limits = f"Limit {path_characters_max} characters, {path_depth_max} levels"
    return PathLimitExceeded(f"Pathname too long.  {limits}: this has {what}")


def _is_unicode(text: str) -> bool:
    """Return whether UTF-8 can encode the text. Python's strings may contain lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_creatable(path: NamespacePath) -> None:
    """Raise BadRequest if HDFS refuses to create the path: for a colon, or a reserved name."""
    components = path.components
    if ":" in "".join(components):
        raise BadRequest(f"Invalid path name {path}: Hadoop's paths cannot hold a colon")
    if SNAPSHOTS_NAME in components or (components and components[0] == _RESERVED_AT_ROOT):
        raise BadRequest(f"Invalid path name {path}: {SNAPSHOTS_NAME} and /{_RESERVED_AT_ROOT} are reserved names")


def check_name_length(name: str) -> None:
    """Raise NameTooLong if a component is too long for a new name."""
    length = len(name) if name.isascii() else len(name.encode())
    if length > name_bytes_max:
        raise NameTooLong(
            f"The maximum path component name limit of {name} is exceeded: limit={name_bytes_max} length={length}"
        )
