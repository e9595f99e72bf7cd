"""The settings with real Sparks: the installed one, and another whose Python PEACEFS_OTHER_SPARK_PYTHON names.

python -m venv spark35 && spark35/bin/pip install pyspark==3.5.0 setuptools
PEACEFS_OTHER_SPARK_PYTHON=spark35/bin/python python -m pytest tests/spark/test_spark_versions.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.command import application
from peacefs.spark_connector.java import find_java, java_environment
from peacefs.spark_connector.runs import begin_run
from peacefs.spark_connector.session import as_dict, settings

SCRIPT = Path(__file__).parent.parent / "support" / "summing_query.py"
OTHER = "PEACEFS_OTHER_SPARK_PYTHON"
ROOT = "/checkpoints/sums"


def spark_version(python: str) -> str:
    asked = "import importlib.metadata as m; print(m.version('pyspark'))"
    return subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(params=["installed", "other"])
def python(request: pytest.FixtureRequest) -> str:
    """Return a Python with a Spark."""
    if request.param == "installed":
        return sys.executable
    if OTHER not in os.environ:
        pytest.skip(f"{OTHER} names no Python with another Spark")
    return os.environ[OTHER]


class Queries:
    """A process of another Python with a Spark, which starts queries on request."""

    def __init__(self, python: str, directory: Path) -> None:
        self._output, self._errors = directory / "out", directory / "errors"
        variables = {
            **java_environment(find_java(), directory / "java"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": python,
        }
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [
                    python,
                    "-P",
                    str(SCRIPT),
                    str(directory / "settings.json"),
                    str(directory / "in"),
                    str(self._output),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables,
            )

    def run(self, checkpoint: str) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{checkpoint}\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line == "done\n":
                said: dict[str, Any] = json.loads(self._output.read_text())
                return said
        raise AssertionError(self._errors.read_text()[-4000:])

    def close(self) -> None:
        with self._process as process:
            try:
                process.communicate(timeout=120)
            finally:
                process.kill()


@contextmanager
def queries(python: str, directory: Path) -> Iterator[Queries]:
    running = Queries(python, directory)
    try:
        yield running
    finally:
        running.close()


@pytest.mark.spark
@pytest.mark.cluster
@pytest.mark.long("several Sparks")
def test_a_query_goes_on_from_its_checkpoint_with_the_settings_for_its_spark(python: str, tmp_path: Path) -> None:
    version = spark_version(python)
    words: Counter[str] = Counter()
    (tmp_path / "in").mkdir()
    with LocalCluster(tmp_path / "cluster", datanodes=3, port=0) as cluster:
        told = as_dict(settings(cluster.http_address, spark_version=version))
        (tmp_path / "settings.json").write_text(json.dumps(told))

        def run(spark: Queries, parts: range) -> dict[str, Any]:
            for part in parts:
                new = [f"word-{(part + row) % 5}" for row in range(20)]
                words.update(new)
                (tmp_path / "in" / f"{part}.txt").write_text("\n".join(new))
                os.utime(tmp_path / "in" / f"{part}.txt", (part + 1, part + 1))
            return spark.run(begin_run(cluster.webhdfs_uri + ROOT).location)

        with queries(python, tmp_path) as spark:
            first = run(spark, range(2))
            assert (first["batch"], first["counts"]) == (1, words)
            assert (first["version"], first["unknown"], first["connections"]) == (version, [], "64")
            again = run(spark, range(2, 3))
            assert (again["batch"], again["counts"]) == (2, words), "the state was there"
        verified = CliRunner().invoke(
            application, ["checkpoint", "verify", ROOT, f"--coordinator={cluster.http_address}"]
        )
        assert (verified.exit_code, "batch 2 is good" in verified.stdout) == (0, True), verified.output
        # Spark 3.5 writes no metadata of operators.
        noted = "note: state/0: a Spark before 4.0 wrote it" in verified.stdout
        assert noted is version.startswith("3.5."), verified.output
