"""Checkpoints of units in peacefs: a file for each part, in a directory that is renamed at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.protocol.errors import FileNotFound

from .checkpoint_store import CheckpointId


@dataclass
class PeaceCheckpoints:
    """Names a directory of a cluster; it is connected to in each process when it is first used."""

    coordinator: str
    directory: str
    user: str | None = None
    _files: PeaceFileSystem | None = field(default=None, init=False, repr=False)

    def store(self, unit: str, checkpoint: CheckpointId, parts: Mapping[str, bytes]) -> None:
        files = self._connected()
        final = self._path(unit, checkpoint)
        parent, _, name = final.rpartition("/")
        staged = f"{parent}/.{name}"
        files.delete(staged, recursive=True)
        files.mkdirs(staged)
        for part, data in parts.items():
            files.write(f"{staged}/{quote(part, safe='')}", data)
        files.rename(staged, final)

    def load(self, unit: str, checkpoint: CheckpointId) -> Mapping[str, bytes]:
        files = self._connected()
        try:
            entries = files.list(self._path(unit, checkpoint))
        except FileNotFound:
            raise FileNotFound(f"checkpoint {checkpoint} of unit {unit!r} is gone") from None
        return {unquote(entry.name): files.read(entry.path) for entry in entries}

    def delete(self, unit: str, checkpoint: CheckpointId) -> None:
        self._connected().delete(self._path(unit, checkpoint), recursive=True)

    def close(self) -> None:
        if self._files is not None:
            self._files.close()
            self._files = None

    def __getstate__(self) -> tuple[str, str, str | None]:
        return self.coordinator, self.directory, self.user

    def __setstate__(self, state: tuple[str, str, str | None]) -> None:
        self.coordinator, self.directory, self.user = state
        self._files = None

    def _connected(self) -> PeaceFileSystem:
        if self._files is None:
            self._files = PeaceFileSystem(self.coordinator, user=self.user)
        return self._files

    def _path(self, unit: str, checkpoint: CheckpointId) -> str:
        return f"{self.directory}/{quote(unit, safe='')}/{checkpoint[0]}-{checkpoint[1]}"
