"""The systemd units: systemd accepts them, they are hardened, and they use existing commands and options."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from peacefs.command import application

_UNITS = sorted((Path(__file__).parents[1] / "deploy" / "systemd").glob("*.service"))
#: Maximum exposure, out of 10, in `systemd-analyze security`; a unit without hardening has 9.6.
_EXPOSURE_MAX = 2.5
#: The agent runs as root, because it starts queries under their users' accounts.
_EXPOSURE_OF_AGENT_MAX = 3.1


class _Unit(configparser.RawConfigParser):
    def optionxform(self, optionstr: str) -> str:
        return optionstr


def read(path: Path) -> _Unit:
    unit = _Unit(strict=True)
    unit.read_string(path.read_text())
    return unit


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    binary = shutil.which("systemd-analyze")
    if binary is None:
        pytest.skip("systemd-analyze is not here: it comes with systemd")
    return subprocess.run([binary, *arguments], capture_output=True, text=True, timeout=120, check=False)


def installed(path: Path, directory: Path) -> Path:
    """Return the unit with a program path that exists here, since systemd checks that the program exists."""
    program = directory / "peacefs"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = directory / path.name
    unit.write_text(path.read_text().replace("/usr/local/bin/peacefs", str(program)))
    return unit


@pytest.mark.parametrize("path", _UNITS, ids=lambda path: path.stem)
def test_unit_is_taken_by_systemd(path: Path, tmp_path: Path) -> None:
    done = analyze("verify", "--man=no", str(installed(path, tmp_path)))
    # Ignore warnings about other units of this machine.
    said = [line for line in (done.stderr + done.stdout).splitlines() if path.name in line or "peacefs" in line]
    assert said == []


@pytest.mark.parametrize("path", _UNITS, ids=lambda path: path.stem)
def test_unit_is_hardened(path: Path, tmp_path: Path) -> None:
    done = analyze("security", "--offline=true", "--no-pager", str(installed(path, tmp_path)))
    found = re.search(r"Overall exposure level for \S+: (\d+\.\d+)", done.stdout)
    if found is None:
        pytest.skip(f"this systemd-analyze judges no files: {done.stderr.strip()[:100]}")
    most = _EXPOSURE_OF_AGENT_MAX if path.stem == "peacefs-agent" else _EXPOSURE_MAX
    assert float(found[1]) <= most, done.stdout


@pytest.mark.parametrize("path", _UNITS, ids=lambda path: path.stem)
def test_unit_uses_commands_and_options_that_exist(path: Path) -> None:
    program, command, *words = read(path)["Service"]["ExecStart"].split()
    assert program.endswith("/peacefs")
    shown = CliRunner().invoke(application, [command, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert shown.exit_code == 0
    # Include the options that the comment at the head of the unit suggests.
    suggested = re.search(r"PEACEFS_OPTIONS=(.*)", path.read_text())
    assert suggested is not None
    for option in (word for word in [*words, *suggested[1].split()] if word.startswith("--")):
        assert option in shown.output, f"peacefs {command} has no {option}"
    for variable in re.findall(r"^#   (PEACEFS_[A-Z_]+)=", path.read_text(), re.MULTILINE):
        assert variable == "PEACEFS_OPTIONS" or variable in shown.output, variable


@pytest.mark.parametrize("path", _UNITS, ids=lambda path: path.stem)
def test_unit_is_started_again_however_often_it_ends(path: Path) -> None:
    unit = read(path)
    assert unit["Service"]["Restart"] == "always"
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"
    directory = unit["Service"]["StateDirectory"]
    assert f"--dir /var/lib/{directory} " in unit["Service"]["ExecStart"]
