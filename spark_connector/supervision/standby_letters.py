"""The letters between an agent and the standbys that it has started: files in a directory of the agent's.

A standby writes into its own file that it is ready. The agent answers, when the standby is to take over, with a
second file that appears whole beside it: the run and its location, as `supervised_run` reads them.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from peacefs.protocol.values.query_runs import GivenRun

from . import run_files
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
        """Delete the letters of an agent before. Raises OSError."""
        self._directory = directory
        self._accounts: dict[Key, Account] = {}
        run_files.begin_directory(directory)

    @property
    def waiting(self) -> set[Key]:
        """The standbys that have no run."""
        return set(self._accounts)

    def begin(self, key: Key, account: Account) -> dict[str, str]:
        """Lay out the letter of a standby. Return what its program's environment says of it."""
        run_files.write_file(self._file(key), b"", account)
        self._accounts[key] = account
        return {STANDBY_VARIABLE: str(self._file(key))}

    def is_ready(self, key: Key) -> bool:
        try:
            return key in self._accounts and self._file(key).read_bytes() == READY
        except OSError:
            return False

    def hand_over(self, key: Key, run: GivenRun) -> None:
        """Give a standby its run: it is none from now on."""
        account = self._accounts.pop(key)
        run_files.write_file(answer_to(self._file(key)), msgspec.json.encode(run), account)

    def drop(self, key: Key) -> None:
        """Delete the letters of a process that has ended, which was a standby once."""
        self._accounts.pop(key, None)
        self._file(key).unlink(missing_ok=True)
        answer_to(self._file(key)).unlink(missing_ok=True)

    def _file(self, key: Key) -> Path:
        query, run = key
        return self._directory / f"{query}.{run}"
