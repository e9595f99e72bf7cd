"""Which Python `setup.sh` chooses on a machine. Scripts stand in for the Pythons."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

SETUP = Path(__file__).parents[1] / "setup.sh"
#: Answers the questions of `setup.sh`, and makes an environment that contains only itself, without a working pip.
PYTHON = """#!/bin/sh
case "$*" in
    *version_info*) exit {too_old} ;;
    *ensurepip*) exit {without_venv} ;;
    *interpreter.py) echo "Python of {name}"; exit {slow} ;;
    "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
    *) exit 1 ;;
esac
"""


class Machine:
    """A machine with these Pythons first on its PATH."""

    def __init__(self, directory: Path) -> None:
        self.bin = directory / "bin"
        self.bin.mkdir()
        self._environment = directory / "environment"

    def has(self, name: str, *, too_old: bool = False, without_venv: bool = False, slow: bool = False) -> Path:
        python = self.bin / name
        python.write_text(
            PYTHON.format(name=name, too_old=int(too_old), without_venv=int(without_venv), slow=int(slow))
        )
        python.chmod(0o755)
        return python

    def set_up(self, python: str | Path | None = None) -> str:
        """Run the script until it installs packages; return its output."""
        environment = {"PATH": f"{self.bin}:{os.environ['PATH']}", "PYTHON": str(python or "")}
        done = subprocess.run(
            [SETUP, self._environment], env=environment, capture_output=True, text=True, timeout=180, check=False
        )
        assert done.returncode == 1
        return done.stdout + done.stderr


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_first_python_on_the_path_is_taken(machine: Machine) -> None:
    first = machine.has("python3")
    machine.has("python3.13")
    said = machine.set_up()
    assert f"with Python of python3 ({first})" in said
    assert "slower" not in said


def test_one_that_was_built_with_optimisation_is_taken_before_one_that_was_not(machine: Machine) -> None:
    slow, fast = machine.has("python3", slow=True), machine.has("python3.13")
    said = machine.set_up()
    assert f"with Python of python3.13 ({fast})" in said
    assert f"not with {slow}, which was built without --enable-optimizations" in said
    assert "hint" not in said


def test_one_that_is_too_old_or_makes_no_environments_is_passed_over(machine: Machine) -> None:
    machine.has("python3", too_old=True)
    machine.has("python3.13", without_venv=True)
    third = machine.has("python3.12")
    assert f"with Python of python3.12 ({third})" in machine.set_up()


def test_one_that_is_named_is_taken_with_a_hint_if_it_is_slow(machine: Machine) -> None:
    machine.has("python3")
    named = machine.has("mine", slow=True)
    said = machine.set_up(named)
    assert f"with Python of mine ({named})" in said
    assert "hint: this Python was built without --enable-optimizations" in said


def test_one_that_is_named_and_too_old_is_refused(machine: Machine) -> None:
    machine.has("python3")
    named = machine.has("mine", too_old=True)
    assert f"setup: PYTHON={named} is not Python 3.11 or newer" in machine.set_up(named)


def test_an_editable_install_is_found_by_a_script_beside_a_checkout_named_peacefs(tmp_path: Path) -> None:
    checkout = tmp_path / "peacefs"
    (checkout / "peacefs").mkdir(parents=True)
    for name in ("pyproject.toml", "README.md", "LICENSE", "peacefs/__init__.py"):
        shutil.copy(SETUP.parent / name, checkout / name)
    build = "import sys; from setuptools.build_meta import build_editable; build_editable(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", build, tmp_path], cwd=checkout, capture_output=True, timeout=180, check=True
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        files.extractall(tmp_path / "site")
    script = "import site; site.addsitedir('site'); import peacefs; print(peacefs.__version__, peacefs.__file__)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert (done.stderr, done.returncode) == ("", 0)
    version, where = done.stdout.split()
    assert where == str(checkout / "peacefs/__init__.py")
    assert f'"{version}"' in (checkout / "peacefs/__init__.py").read_text()
