"""Files by which an agent and its standbys talk, in a directory of the agent.

A standby writes to its own file (its letter) that it is ready. When it is to take over, the agent answers with a
second file, which appears whole: the run and its location, as `supervised_run` reads them.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from peacefs.protocol.values.query_runs import GivenRun

from . import run_files
from .reconciliation import Key
from .run_account import Account

#: The variable that tells a standby's program the path of its file.
STANDBY_VARIABLE = "PEACEFS_STANDBY_FILE"
READY = b"ready\n"


def answer_to(letter: Path) -> Path:
    """Return the file in which a standby finds its run."""
    return letter.with_name(letter.name + ".run")


class StandbyLetters:
    """The files of all standbys, in a directory of the agent's own. Use from one thread."""

    def __init__(self, directory: Path) -> None:
        """Delete what an earlier agent has left. Raises OSError."""
        self._directory = directory
        self._accounts: dict[Key, Account] = {}
        run_files.begin_directory(directory)

    @property
    def waiting(self) -> set[Key]:
        """The standbys that have no run yet."""
        return set(self._accounts)

    def begin(self, key: Key, account: Account) -> dict[str, str]:
        """Create a standby's file. Return the variables that tell its program where."""
        run_files.write_file(self._file(key), b"", account)
        self._accounts[key] = account
        return {STANDBY_VARIABLE: str(self._file(key))}

    def is_ready(self, key: Key) -> bool:
        try:
            return key in self._accounts and self._file(key).read_bytes() == READY
        except OSError:
            return False

    def hand_over(self, key: Key, run: GivenRun) -> None:
        """Give a standby its run, after which it is no standby any more."""
        account = self._accounts.pop(key)
        run_files.write_file(answer_to(self._file(key)), msgspec.json.encode(run), account)

    def drop(self, key: Key) -> None:
        """Delete the files of a process that has ended, if it was a standby once."""
        self._accounts.pop(key, None)
        self._file(key).unlink(missing_ok=True)
        answer_to(self._file(key)).unlink(missing_ok=True)

    def _file(self, key: Key) -> Path:
        query, run = key
        return self._directory / f"{query}.{run}"
