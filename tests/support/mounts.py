"""Small file systems that tests can fill. Mounting needs root."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def mounted(directory: Path, size: int) -> Iterator[Path]:
    """Yield a file system of `size` bytes in memory."""
    directory.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)], capture_output=True, text=True
    )
    if made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr.strip()}")
    try:
        yield directory
    finally:
        while directory.is_mount():
            subprocess.run(["umount", "--lazy", str(directory)], check=True)


def fill(directory: Path) -> Path:
    """Fill the file system with another user's file; return its path."""
    taken = directory / "somebody's"
    with taken.open("ab") as filler:
        while free := (found := os.statvfs(directory)).f_bavail * found.f_frsize:
            os.posix_fallocate(filler.fileno(), os.fstat(filler.fileno()).st_size, free)
    return taken
