"""Make a demo's working directory, and remove it at the end."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from peacefs.protocol.errors import StartupError
from peacefs.runtime.private_files import DIRECTORY_MODE


@contextlib.contextmanager
def work_directory(wanted: Path | None, *, keep: bool, prefix: str) -> Iterator[Path]:
    """Yield an empty directory, by default a temporary one. Remove it afterwards unless `keep`.

    Raises StartupError if it cannot be made or is not empty.
    """
    if wanted is None:
        directory = Path(tempfile.mkdtemp(prefix=prefix))
    else:
        directory = wanted.expanduser().absolute()
        try:
            directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            if any(directory.iterdir()):
                raise StartupError(f"{directory} is not empty: name another directory")
        except OSError as error:
            raise StartupError(f"cannot use {directory}: {error.strerror}") from None
    try:
        yield directory
    finally:
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)
