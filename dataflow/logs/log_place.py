"""Logs by their address: `webhdfs://host:port/streams/logins`, `/streams/logins`, `file:///var/streams/logins`."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from peacefs.client.control.addresses import DEFAULT_ADDRESS, is_uri, parse_address, split_uri
from peacefs.protocol.errors import BadRequest

from .directory_segments import DirectorySegments
from .segments import SegmentStore, stream_name

if TYPE_CHECKING:
    from peacefs.client.filesystem import PeaceFileSystem

COORDINATOR_VARIABLES = ("PEACEFS_URL", "PEACEFS_COORDINATOR")


@contextmanager
def open_stream(
    address: str, *, coordinator: str | None = None, user: str | None = None
) -> Iterator[tuple[SegmentStore, str]]:
    """Open the store of a log, and return it with the log's name in it. Raises BadRequest.

    A path without a host belongs to `coordinator`. The default is PEACEFS_URL or PEACEFS_COORDINATOR, else this
    machine.
    """
    local = local_directory(address)
    if local is not None:
        with DirectorySegments(local.parent) as store:
            yield store, stream_name(local.name)
        return
    # A log in a directory does not need the client, which takes a quarter of a second to import. Spark imports
    # this module for each step of a batch.
    from peacefs.client.filesystem import PeaceFileSystem

    named = next((value for name in COORDINATOR_VARIABLES if (value := os.environ.get(name))), None)
    where = parse_address(coordinator or named or DEFAULT_ADDRESS.http)
    path = address
    if is_uri(address):
        where, path = split_uri(address)
    with PeaceFileSystem(where.http, user=user) as files:
        absolute = posixpath.normpath(posixpath.join("/user", files.user, path))
        with stream_of(files, "/" + absolute.lstrip("/")) as opened:
            yield opened


@contextmanager
def stream_of(files: PeaceFileSystem, path: str) -> Iterator[tuple[SegmentStore, str]]:
    """Open the log at an absolute path of a cluster."""
    from .peace_segments import PeaceSegments

    parent, _, name = path.rpartition("/")
    if not name:
        raise BadRequest("the root directory is no stream log: name a directory below it")
    with PeaceSegments(files, parent) as store:
        yield store, stream_name(name)


def local_directory(address: str) -> Path | None:
    """Return the directory of a `file:` address; None for any other address. Raises BadRequest."""
    parts = urlsplit(address)
    if parts.scheme != "file":
        if not address or ("://" in address and not is_uri(address)):
            raise BadRequest(f"{address!r} names no log: a path, webhdfs://host:port/path or file:///path does")
        return None
    if parts.netloc not in ("", "localhost") or not parts.path.strip("/"):
        raise BadRequest(f"{address!r} names no directory of this machine: file:///path does")
    return Path(unquote(parts.path))
