"""A Spark with executors in separate processes, shared by the tests of a worker: a plugin of `conftest.py`.

It starts at first use. It runs as a separate program, because a process has one Spark context
(`executors_ordeal`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_TESTS = Path(__file__).parent.parent
_END_S = 60


class Executors:
    """Two executors of one core each. Spark replaces each executor that is killed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._log = directory / "log"
        self._process: subprocess.Popen[str] | None = None

    def play(self, technique: str) -> dict[str, Any]:
        """Run a dataflow that loses an executor, with a technique. Return its rows and sessions."""
        return self._ask(technique)

    def run(self, script: Path) -> None:
        """Run a program that gets this Spark as its session. Raise AssertionError if the program fails."""
        try:
            assert self._ask(f"{script}") == {"failure": None}
        finally:
            self.close()

    def close(self) -> None:
        if self._process is None:
            return
        with self._process as process:
            self._process = None
            try:
                process.communicate(timeout=_END_S)
            finally:
                process.kill()

    def _ask(self, words: str) -> dict[str, Any]:
        if self._process is None:
            self._process = self._start()
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{words}\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("{"):
                said: dict[str, Any] = json.loads(line)
                return said
        raise AssertionError(self._log.read_text()[-4000:])

    def _start(self) -> subprocess.Popen[str]:
        from peacefs.spark_connector.java import find_java, java_environment

        environment = {
            **os.environ,
            **java_environment(find_java(), self._directory),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(_TESTS),
        }
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "support.executors_ordeal", str(self._directory)],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )


@pytest.fixture(scope="session")
def executors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executors]:
    executors = Executors(tmp_path_factory.mktemp("executors"))
    yield executors
    executors.close()
