"""The letters between an agent and the standbys that it has started: files in a directory of the agent's.

A standby writes into its own file that it is ready. The agent answers, when the standby is to take over, with a
second file that appears whole beside it: the run and its location, as `supervised_run` reads them.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from peacefs.protocol import private_files
from peacefs.protocol.values.query_runs import GivenRun

from .reconciliation import Key
from .run_account import Account

#: The variable that names a standby's file to its program.
STANDBY_VARIABLE = "PEACEFS_STANDBY_FILE"
READY = b"ready\n"


def answer_to(letter: Path) -> Path:
    """Return the file in which a standby finds the run that it is given."""
    return letter.with_name(letter.name + ".run")


class StandbyLetters:
    """In a directory of the agent's own; used from one thread."""

    def __init__(self, directory: Path) -> None:
        """Raises OSError. Letters of an agent before are deleted."""
        self._directory = directory
        self._accounts: dict[Key, Account] = {}
        private_files.make_directory(directory)
        # As root, accounts of runs pass through to what is theirs, and see no names.
        directory.chmod(0o711 if os.geteuid() == 0 else private_files.DIRECTORY_MODE)
        for left in directory.iterdir():
            left.unlink(missing_ok=True)

    @property
    def waiting(self) -> set[Key]:
        """The standbys that have no run."""
        return set(self._accounts)

    def begin(self, key: Key, account: Account) -> dict[str, str]:
        """Lay out the letter of a standby. Return what its program's environment says of it."""
        self._write(self._file(key), b"", account)
        self._accounts[key] = account
        return {STANDBY_VARIABLE: str(self._file(key))}

    def is_ready(self, key: Key) -> bool:
        try:
            return key in self._accounts and self._file(key).read_bytes() == READY
        except OSError:
            return False

    def hand_over(self, key: Key, run: GivenRun) -> None:
        """Give a standby its run: it is none from now on."""
        self._write(answer_to(self._file(key)), msgspec.json.encode(run), self._accounts.pop(key))

    def drop(self, key: Key) -> None:
        """Delete the letters of a process that has ended, which was a standby once."""
        self._accounts.pop(key, None)
        self._file(key).unlink(missing_ok=True)
        answer_to(self._file(key)).unlink(missing_ok=True)

    def _write(self, file: Path, content: bytes, account: Account) -> None:
        staged = file.with_name(file.name + ".new")
        staged.unlink(missing_ok=True)
        with os.fdopen(os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as writing:
            writing.write(content)
        if account.groups is not None:
            # The run has another account of this machine.
            os.chown(staged, account.uid, account.gid)
        staged.rename(file)

    def _file(self, key: Key) -> Path:
        query, run = key
        return self._directory / f"{query}.{run}"
