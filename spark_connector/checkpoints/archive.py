"""A checkpoint as one file: a zip whose last member lists the SHA-256 of every other, as `sha256sum -c` reads it.

Members are stored uncompressed below `checkpoint/`, since the large files of a checkpoint are compressed already.
A zip's directory is at its end, so an archive that was cut short cannot be opened.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Self

from peacefs.protocol.errors import BadRequest, CheckpointDamaged, PeacefsError
from peacefs.protocol.limits import packet_bytes

_PREFIX = "checkpoint/"
_SUMS = "SHA256SUMS"
#: The comment of the zip. It detects an archive that was cut right after a snapshot, which is itself a zip.
_MARK = b"peacefs checkpoint archive 1"
_SUM_LINE = re.compile(r"([0-9a-f]{64})  checkpoint/(.+)")
_FAULTS = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, ValueError)


class ArchiveWriter:
    """Write an archive beside `target`. `finish` syncs and renames it; without `finish` nothing remains.

    Raises PeacefsError if the archive cannot be written.
    """

    def __init__(self, target: Path) -> None:
        self._target = target
        self._staged = target.with_name(f".{target.name}.tmp")
        try:
            self._zip = zipfile.ZipFile(self._staged, "w", zipfile.ZIP_STORED)
        except OSError as error:
            raise self._not_made(error) from None
        self._sums: list[str] = []

    def add(self, path: str, data: Iterable[bytes]) -> None:
        digest = hashlib.sha256()
        with self._zip.open(_PREFIX + path, "w", force_zip64=True) as member:
            for piece in data:
                digest.update(piece)
                member.write(piece)
        self._sums.append(f"{digest.hexdigest()}  {_PREFIX}{path}\n")

    def finish(self) -> None:
        self._zip.writestr(_SUMS, "".join(self._sums))
        self._zip.comment = _MARK
        self._zip.close()
        _sync(self._staged)
        self._staged.replace(self._target)
        _sync(self._target.parent)

    def _not_made(self, error: OSError) -> PeacefsError:
        return PeacefsError(f"{self._target} was not made: {error.strerror or error}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # On a full disk closing fails too, and then the partial file must be removed all the more.
        with contextlib.suppress(OSError):
            self._zip.close()
        self._staged.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise self._not_made(error) from None


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class ArchiveReader:
    """An archive open for reading. `paths` lists its files, `bytes` is their total size.

    Raises BadRequest if the file is no such archive, CheckpointDamaged if it is not whole.
    """

    def __init__(self, source: Path) -> None:
        self._source = source
        try:
            self._zip = zipfile.ZipFile(source)
        except FileNotFoundError:
            raise BadRequest(f"there is no file {source}") from None
        except _FAULTS as fault:
            raise CheckpointDamaged(f"{source} is no archive of a checkpoint, or is cut short: {fault}") from None
        try:
            self._sums = self._read_sums()
        except BaseException:
            self._zip.close()
            raise
        self.paths = sorted(self._sums)
        self.bytes = sum(self._zip.getinfo(_PREFIX + path).file_size for path in self.paths)

    def read(self, path: str) -> Iterator[bytes]:
        """Yield a file's contents. Raises CheckpointDamaged, at the latest at the end."""
        digest = hashlib.sha256()
        try:
            with self._zip.open(_PREFIX + path) as member:
                while piece := member.read(packet_bytes):
                    digest.update(piece)
                    yield piece
        except _FAULTS as fault:
            raise CheckpointDamaged(f"{self._source} is damaged: {path}: {fault}") from None
        if digest.hexdigest() != self._sums[path]:
            raise CheckpointDamaged(f"{self._source} is damaged: {path} does not match its SHA-256")

    def _read_sums(self) -> dict[str, str]:
        names = self._zip.namelist()
        if self._zip.comment != _MARK or _SUMS not in names:
            raise BadRequest(f"{self._source} is no archive of a checkpoint, or is cut short")
        try:
            lines = self._zip.read(_SUMS).decode().removesuffix("\n").split("\n")
        except _FAULTS as fault:
            raise CheckpointDamaged(f"{self._source} is damaged: {_SUMS}: {fault}") from None
        sums: dict[str, str] = {}
        for line in lines:
            found = _SUM_LINE.fullmatch(line)
            if found is None or not _is_inside(found[2]):
                raise BadRequest(f"{self._source} is no archive of a checkpoint: {line!r} in {_SUMS}")
            sums[found[2]] = found[1]
        if {_PREFIX + path for path in sums} != {*names} - {_SUMS} or len(names) != len(sums) + 1:
            raise CheckpointDamaged(f"{self._source} is damaged: it does not hold what {_SUMS} lists")
        return sums

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._zip.close()


def _is_inside(path: str) -> bool:
    """Return whether a path is relative, normal, and stays inside its directory."""
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and ".." not in parts and str(PurePosixPath(path)) == path
