"""The tokens of an agent's runs: a file for each, which its program reads, and which is gone when the run is."""

from __future__ import annotations

from pathlib import Path

from peacefs.protocol.messages import RunOrder

from . import run_files
from .reconciliation import Key, key_of
from .run_account import Account


class RunTokens:
    """In a directory of the agent's own; used from one thread."""

    def __init__(self, directory: Path) -> None:
        """Delete what an agent before has left. Raises OSError."""
        self._directory = directory
        self._kept: dict[Key, str] = {}
        #: The files that runs have taken over from their standbys.
        self._taken: dict[Key, Path] = {}
        run_files.begin_directory(directory)

    def keep(self, order: RunOrder, account: Account) -> dict[str, str]:
        """Put the order's token into the run's file. Return what its program's environment says of it."""
        if not order.token:
            return {}
        file = self._file(key_of(order))
        if self._kept.get(key_of(order)) != order.token:
            run_files.write_file(file, f"{order.token}\n".encode(), account)
            self._kept[key_of(order)] = order.token
        return {"PEACEFS_TOKEN_FILE": str(file)}

    def take_over(self, standby: Key, run: Key) -> None:
        """From now on a run's tokens go into the file that its process reads since it was a standby."""
        if (token := self._kept.pop(standby, None)) is not None:
            self._taken[run] = self._file(standby)
            self._kept[run] = token

    def drop(self, key: Key) -> None:
        if self._kept.pop(key, None) is not None:
            self._file(key).unlink(missing_ok=True)
        self._taken.pop(key, None)

    def _file(self, key: Key) -> Path:
        query, run = key
        return self._taken.get(key) or self._directory / f"{query}.{run}"
