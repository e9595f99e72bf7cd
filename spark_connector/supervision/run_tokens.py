"""The tokens of an agent's runs: one file per run, which its program reads, deleted when the run ends."""

from __future__ import annotations

from pathlib import Path

from peacefs.protocol.messages import RunOrder

from . import run_files
from .reconciliation import Key, key_of
from .run_account import Account


class RunTokens:
    """Token files in a directory of the agent's own. Use from one thread."""

    def __init__(self, directory: Path) -> None:
        """Delete what an earlier agent has left. Raises OSError."""
        self._directory = directory
        self._kept: dict[Key, str] = {}
        #: The files of runs that took over a standby's process, and with it the standby's file.
        self._taken: dict[Key, Path] = {}
        run_files.begin_directory(directory)

    def keep(self, order: RunOrder, account: Account) -> dict[str, str]:
        """Write the order's token to the run's file. Return the variables that tell its program where."""
        if not order.token:
            return {}
        file = self._file(key_of(order))
        if self._kept.get(key_of(order)) != order.token:
            run_files.write_file(file, f"{order.token}\n".encode(), account)
            self._kept[key_of(order)] = order.token
        return {"PEACEFS_TOKEN_FILE": str(file)}

    def take_over(self, standby: Key, run: Key) -> None:
        """Write the run's tokens to the standby's file from now on, since that is the file its process reads."""
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
