"""The tokens of an agent's runs: a file for each, which its program reads, and which is gone when the run is."""

from __future__ import annotations

import os
from pathlib import Path

from peacefs.protocol import private_files
from peacefs.protocol.messages import RunOrder

from .reconciliation import Key, key_of
from .run_account import Account


class RunTokens:
    """In a directory of the agent's own; used from one thread."""

    def __init__(self, directory: Path) -> None:
        """Raises OSError. What an agent before has left is deleted."""
        self._directory = directory
        self._kept: dict[Key, str] = {}
        #: The files that runs have taken over from their standbys.
        self._taken: dict[Key, Path] = {}
        private_files.make_directory(directory)
        # As root, accounts of runs pass through to what is theirs, and see no names.
        directory.chmod(0o711 if os.geteuid() == 0 else private_files.DIRECTORY_MODE)
        for left in directory.iterdir():
            left.unlink(missing_ok=True)

    def keep(self, order: RunOrder, account: Account) -> dict[str, str]:
        """Put the order's token into the run's file. Return what its program's environment says of it."""
        if not order.token:
            return {}
        file = self._file(key_of(order))
        if self._kept.get(key_of(order)) != order.token:
            staged = file.with_name(file.name + ".new")
            staged.unlink(missing_ok=True)
            with os.fdopen(os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as writing:
                writing.write(order.token + "\n")
            if account.groups is not None:
                # The run has another account of this machine.
                os.chown(staged, account.uid, account.gid)
            staged.rename(file)
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
