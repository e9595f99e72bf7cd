"""Small files that are replaced as a whole, and survive a crash of the machine."""

from __future__ import annotations

import os
from pathlib import Path

from peacefs.runtime.disk_files import sync_directory


def replace_file(path: Path, data: bytes, *, staged: str) -> None:
    """Replace a file atomically and durably. `staged`: the name of the new file until it is complete."""
    beside = path.with_name(staged)
    with beside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.rename(path)
    sync_directory(str(path.parent))
