"""Copies of single files between the local disk and the cluster, without extra requests.

fsspec's own methods ask for a path's type before opening it, and create its parent before writing it. That costs
one more round trip for each file of a tree.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.utils import isfilelike

from peacefs.client.os_errors import os_errors
from peacefs.protocol.errors import PathIsDirectory
from peacefs.protocol.limits import fast_lane_bytes_max, read_packet_bytes

from .awaited import AwaitedFileSystem

if TYPE_CHECKING:
    from peacefs.client.file_objects import FileSource
    from peacefs.client.filesystem import PeaceFileSystem


class CopyingFileSystem(AwaitedFileSystem):
    """Replaces the two fsspec methods that copy a single file. fsspec's `get` and `put` of trees call them."""

    @property
    @abstractmethod
    def files(self) -> PeaceFileSystem:
        """The underlying client."""

    def get_file(
        self, rpath: str, lpath: Any = None, callback: Any = DEFAULT_CALLBACK, outfile: Any = None, **kwargs: Any
    ) -> None:
        """Copy a file to the local disk. If `rpath` is a directory, make a local one."""
        if outfile is None and isfilelike(lpath):
            outfile = lpath
        with os_errors():
            try:
                source = self.files.open(self._strip_protocol(rpath))
            except PathIsDirectory:
                if outfile is not None:
                    raise
                Path(lpath).mkdir(parents=True, exist_ok=True)
                return
        with source:
            if outfile is not None:
                _copy(source, outfile, callback)
                return
            local = Path(lpath)
            local.parent.mkdir(parents=True, exist_ok=True)
            with local.open("wb", buffering=0) as target:
                _copy(source, target, callback)

    def put_file(
        self, lpath: Any, rpath: str, callback: Any = DEFAULT_CALLBACK, mode: str = "overwrite", **kwargs: Any
    ) -> None:
        """Copy a local file into the cluster. Parents are made when the file is published.

        With `mode` "create", an existing file is not replaced; publishing checks this.
        """
        local = Path(lpath)
        if local.is_dir():
            self.makedirs(rpath, exist_ok=True)
            return
        with local.open("rb", buffering=0) as source:
            size = os.fstat(source.fileno()).st_size
            callback.set_size(size)
            if size <= fast_lane_bytes_max and not kwargs:
                data = source.read()
                self.pipe_file(rpath, data, mode)
                callback.relative_update(len(data))
                return
            with self.open(rpath, "xb" if mode == "create" else "wb", **kwargs) as sink:
                while data := source.read(read_packet_bytes):
                    sink.write(data)
                    callback.relative_update(len(data))


def _copy(source: FileSource, target: Any, callback: Any) -> None:
    callback.set_size(source.length)
    room = memoryview(bytearray(min(read_packet_bytes, max(source.length, 1))))
    with os_errors():
        while count := source.readinto(room):
            written = 0
            while written < count:
                written += target.write(room[written:count]) or count - written
            callback.relative_update(count)
