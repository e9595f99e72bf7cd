"""Remove what dead emulations left. All their names contain the process id of the emulation."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

_NAME = re.compile(r"peacefs-emulation-(\d+)-")


def own_name(what: str) -> str:
    """Return a name for something that belongs to this process."""
    return f"peacefs-emulation-{os.getpid()}-{what}"


def remove_leftovers(memory: Path) -> None:
    """Remove namespaces, and directories in `memory`, of emulations that have died.

    Their processes end by themselves when the process that started them is gone.
    """
    for namespace in _namespaces():
        if _is_orphan(namespace):
            remove_namespace(namespace)
    for path in memory.glob("peacefs-emulation-*"):
        if _is_orphan(path.name):
            shutil.rmtree(path, ignore_errors=True)


def remove_own_namespaces() -> None:
    """Remove all namespaces of this process, even if it has made only some of them."""
    for namespace in _namespaces():
        if namespace.startswith(own_name("")):
            remove_namespace(namespace)


def remove_namespace(name: str) -> None:
    """Remove a namespace with its cables. Succeeds if it does not exist."""
    subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def _namespaces() -> list[str]:
    listed = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True).stdout
    return [line.split()[0] for line in listed.splitlines() if line.strip()]


def _is_orphan(name: str) -> bool:
    found = _NAME.match(name)
    return found is not None and not Path("/proc", found.group(1)).exists()
