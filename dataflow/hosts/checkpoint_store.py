"""Stores of checkpoints of units: a port, its twin in memory, and a directory.

A checkpoint is there whole or not at all, and stays until it is deleted. What of peacefs is not used yet: its I/O
service, which writes the parts in parallel.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, unquote

from crc32c import crc32c

from peacefs.protocol.errors import ChecksumMismatch, FileNotFound

#: (incarnation, number) of the unit that stored it
CheckpointId = tuple[int, int]
_CHECKSUM_BYTES = 4


class CheckpointStore(Protocol):
    def store(self, unit: str, checkpoint: CheckpointId, parts: Mapping[str, bytes]) -> None:
        """Store the parts so that they outlive this machine's process, under a name that was never used."""
        ...

    def load(self, unit: str, checkpoint: CheckpointId) -> Mapping[str, bytes]:
        """Return the parts. Raises FileNotFound, or ChecksumMismatch if one is not what was stored."""
        ...

    def delete(self, unit: str, checkpoint: CheckpointId) -> None:
        """Delete it, if it is there."""
        ...


class MemoryCheckpoints:
    def __init__(self) -> None:
        self._stored: dict[tuple[str, CheckpointId], Mapping[str, bytes]] = {}

    def store(self, unit: str, checkpoint: CheckpointId, parts: Mapping[str, bytes]) -> None:
        self._stored[unit, checkpoint] = dict(parts)

    def load(self, unit: str, checkpoint: CheckpointId) -> Mapping[str, bytes]:
        try:
            return self._stored[unit, checkpoint]
        except KeyError:
            raise _gone(unit, checkpoint) from None

    def delete(self, unit: str, checkpoint: CheckpointId) -> None:
        self._stored.pop((unit, checkpoint), None)


class DirectoryCheckpoints:
    """A file for each part, with its checksum before it, in a directory that is renamed at the end."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def store(self, unit: str, checkpoint: CheckpointId, parts: Mapping[str, bytes]) -> None:
        final = self._path(unit, checkpoint)
        staged = final.with_name(f".{final.name}")
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir(parents=True)
        for name, part in parts.items():
            with (staged / quote(name, safe="")).open("wb") as file:
                file.write(crc32c(part).to_bytes(_CHECKSUM_BYTES, "big"))
                file.write(part)
                file.flush()
                os.fsync(file.fileno())
        _fsync_directory(staged)
        staged.rename(final)
        _fsync_directory(final.parent)

    def load(self, unit: str, checkpoint: CheckpointId) -> Mapping[str, bytes]:
        parts = {}
        try:
            files = sorted(self._path(unit, checkpoint).iterdir())
        except FileNotFoundError:
            raise _gone(unit, checkpoint) from None
        for file in files:
            data = file.read_bytes()
            part = data[_CHECKSUM_BYTES:]
            if crc32c(part).to_bytes(_CHECKSUM_BYTES, "big") != data[:_CHECKSUM_BYTES]:
                raise ChecksumMismatch(f"{file} is not what was stored: restore the file, or begin the query anew")
            parts[unquote(file.name)] = part
        return parts

    def delete(self, unit: str, checkpoint: CheckpointId) -> None:
        shutil.rmtree(self._path(unit, checkpoint), ignore_errors=True)

    def _path(self, unit: str, checkpoint: CheckpointId) -> Path:
        return self._root / quote(unit, safe="") / f"{checkpoint[0]}-{checkpoint[1]}"


def _gone(unit: str, checkpoint: CheckpointId) -> FileNotFound:
    return FileNotFound(f"checkpoint {checkpoint} of unit {unit!r} is gone")


def _fsync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
