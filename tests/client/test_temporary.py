"""`peacefs fsck --temporary`: finds remains of dead writers by name and age."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from peacefs.client.command_line.application import application
from peacefs.client.filesystem import PeaceFileSystem

pytestmark = pytest.mark.cluster

LEFT = ".3.0b0f7a3c-91f4-4b39-8a6e-0d1f2e3a4b5c.TID7.tmp"


def run(files: PeaceFileSystem, *arguments: str) -> tuple[int, list[str], str]:
    result = CliRunner().invoke(application, ["fsck", "--coordinator", files.address, *arguments])
    return result.exit_code, result.stdout.splitlines(), result.stderr


def test_temporary_files_are_listed_by_age_for_people_and_machines(files: PeaceFileSystem, home: str) -> None:
    for name, data in (
        ("offsets/" + LEFT, b"12345"),
        ("x._COPYING_", b"123"),
        ("offsets/3", b"1"),
        ("x.tmp", b"1"),
    ):
        files.write(f"{home}/{name}", data, replication=1)
    status, lines, _ = run(files, "--temporary", "--older-than", "0", home)
    assert status == 0 and len(lines) == 3
    assert lines[0].startswith(f"{home}/x._COPYING_ 3 bytes, 0.0 hours old")
    assert lines[1].startswith(f"{home}/offsets/{LEFT} 5 bytes")
    assert lines[2].startswith("2 temporary files with 8 bytes")
    status, lines, _ = run(files, "--temporary", "--json", "--older-than", "0", home)
    *found, summary = map(json.loads, lines)
    assert [(each["path"], each["length"]) for each in found] == [
        (f"{home}/x._COPYING_", 3),
        (f"{home}/offsets/{LEFT}", 5),
    ]
    assert summary == {"type": "summary", "path": home, "temporary_files": 2, "bytes": 8}
    assert run(files, "--temporary", home)[1] == [
        "0 temporary files with 0 bytes that have not changed for 24 hours"
    ]


def test_wrong_use_and_missing_paths_are_said_in_a_line(files: PeaceFileSystem, home: str) -> None:
    assert run(files, "--temporary", "--files", home)[0] == 2
    status, lines, complaint = run(files, "--temporary", f"{home}/none")
    assert (status, lines) == (1, []) and "No such file" in complaint and "Traceback" not in complaint
