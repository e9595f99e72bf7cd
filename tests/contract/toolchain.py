"""Get Hadoop's jars with Maven, compile the suites, and start JVMs: all in `build/contract`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_HERE = Path(__file__).parent
_LOGGING = """
log4j.rootLogger=ERROR, err
log4j.appender.err=org.apache.log4j.FileAppender
log4j.appender.err.File=${contract.log}
log4j.appender.err.layout=org.apache.log4j.PatternLayout
log4j.appender.err.layout.ConversionPattern=%d %p %c: %m%n
"""
#: Short programs gain nothing from the optimising compiler.
_JVM = ("-XX:TieredStopAtLevel=1", "-Xmx1g", "-Djava.net.preferIPv4Stack=true")


class MissingTool(Exception):
    """A required tool is not installed."""


class Toolchain:
    """Hadoop's jars and compiled suites. `build` is the directory for class paths, classes and logs."""

    def __init__(self, build: Path) -> None:
        self.build = build
        build.mkdir(parents=True, exist_ok=True)
        self._tools = {name: _found(name) for name in ("mvn", "java", "javac")}
        self._classpath = ""

    def prepare(self) -> None:
        """Get the jars and compile. Raises CalledProcessError with stderr of Maven or the compiler."""
        classes, listed = self.build / "classes", self.build / "classpath"
        goal = ["dependency:build-classpath", f"-Dmdep.outputFile={listed}"]
        self._run([self._tools["mvn"], "--batch-mode", "--quiet", "--file", str(_HERE / "pom.xml"), *goal])
        classes.mkdir(exist_ok=True)
        (classes / "log4j.properties").write_text(_LOGGING)
        self._classpath = f"{classes}{os.pathsep}{listed.read_text().strip()}"
        sources = [str(path) for path in sorted((_HERE / "java").rglob("*.java"))]
        options = ["-nowarn", "-d", str(classes), "-cp", self._classpath]
        self._run([self._tools["javac"], *options, *sources])

    def command(
        self, main: str, arguments: Sequence[str], properties: Mapping[str, str], *, log: str
    ) -> list[str]:
        """Return the command that runs a class in a JVM that logs to a file of this name."""
        given = [f"-D{name}={value}" for name, value in {**properties, "contract.log": self.log(log)}.items()]
        return [self._tools["java"], *_JVM, *given, "-cp", self._classpath, main, *arguments]

    def log(self, name: str) -> str:
        return str(self.build / f"{name}.log")

    @staticmethod
    def _run(command: list[str]) -> None:
        subprocess.run(command, check=True)


def _found(tool: str) -> str:
    found = shutil.which(tool)
    if found is None:
        raise MissingTool(f"{tool} is not installed (Debian: apt install maven default-jdk-headless)")
    return found
