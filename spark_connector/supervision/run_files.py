"""Write files for the processes of an agent's runs, in private directories of the agent."""

from __future__ import annotations

import os
from pathlib import Path

from peacefs.runtime import private_files

from .run_account import Account


def begin_directory(directory: Path) -> None:
    """Make a directory, or empty one that an earlier agent has left. Raises OSError."""
    private_files.make_directory(directory)
    # Only root's runs have other accounts: they may open files here by path, but not list the directory.
    directory.chmod(0o711 if os.geteuid() == 0 else private_files.DIRECTORY_MODE)
    for left in directory.iterdir():
        left.unlink(missing_ok=True)


def write_file(file: Path, content: bytes, account: Account) -> None:
    """Write a file atomically, readable for the run's account only. Raises OSError."""
    staged = file.with_name(file.name + ".new")
    staged.unlink(missing_ok=True)
    with open(staged, "xb", opener=private_files.opener) as writing:
        writing.write(content)
    if account.groups is not None:
        os.chown(staged, account.uid, account.gid)
    staged.rename(file)
