"""The next emulation removes the leftovers of a killed one, and nothing that others use."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.emulation.leftovers import own_name, remove_leftovers, remove_namespace, remove_own_namespaces

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="network namespaces need root and iproute2"
)


def _namespaces() -> set[str]:
    listed = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True).stdout
    return {line.split()[0] for line in listed.splitlines() if line.strip()}


def _dead_pid() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


@pytest.fixture
def namespaces() -> Iterator[tuple[str, str]]:
    """Make namespaces of a dead process, and of this one."""
    names = f"peacefs-emulation-{_dead_pid()}-n00", own_name("n00")
    try:
        for name in names:
            subprocess.run(["ip", "netns", "add", name], check=True)
        yield names
    finally:
        for name in names:
            remove_namespace(name)


def test_only_what_belongs_to_the_dead_is_removed(namespaces: tuple[str, str], tmp_path: Path) -> None:
    dead, own = namespaces
    for name in (f"{dead}-data", f"{own}-data", "of-somebody-else"):
        (tmp_path / name).mkdir()
    remove_leftovers(tmp_path)
    assert namespaces[1] in _namespaces() and dead not in _namespaces()
    assert {path.name for path in tmp_path.iterdir()} == {f"{own}-data", "of-somebody-else"}
    remove_own_namespaces()
    assert own not in _namespaces()
