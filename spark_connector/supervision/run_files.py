"""Files that an agent writes for the processes of its runs, in private directories of its own."""

from __future__ import annotations

import os
from pathlib import Path

from peacefs.runtime import private_files

from .run_account import Account


def begin_directory(directory: Path) -> None:
    """Make a directory, or empty the one that an agent before has left. Raises OSError."""
    private_files.make_directory(directory)
    # Accounts of runs, which only root starts, pass through to what is theirs, and see no names.
    directory.chmod(0o711 if os.geteuid() == 0 else private_files.DIRECTORY_MODE)
    for left in directory.iterdir():
        left.unlink(missing_ok=True)


def write_file(file: Path, content: bytes, account: Account) -> None:
    """Put a file in place at once, which only the account of the run may open. Raises OSError."""
    staged = file.with_name(file.name + ".new")
    staged.unlink(missing_ok=True)
    with open(staged, "xb", opener=private_files.opener) as writing:
        writing.write(content)
    if account.groups is not None:
        # The run has another account of this machine.
        os.chown(staged, account.uid, account.gid)
    staged.rename(file)
