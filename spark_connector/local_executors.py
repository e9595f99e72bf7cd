"""A Spark session on this machine whose executors are separate processes, which can be killed one by one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def session_of_executors(
    directory: Path, executors: int, name: str, *, cores: int = 1, settings: Mapping[str, str] | None = None
) -> Any:
    """Start a session of `executors` executors with `cores` cores each. Spark's files go below `directory`."""
    from pyspark.sql import SparkSession

    os.environ["SPARK_HOME"] = str(_home(directory))
    builder = (
        SparkSession.builder.master(f"local-cluster[{executors},{cores},512]")
        .appName(name)
        .config("spark.executor.memory", "512m")
        .config("spark.task.maxFailures", "1000")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
    )
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def executor_of(worker: int) -> int:
    """Return the pid of the executor's JVM, which is the grandparent of a Python worker."""
    return _parent(_parent(worker))


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _home(directory: Path) -> Path:
    """Return a directory of links to Spark's package, for use as SPARK_HOME: workers write files there."""
    import pyspark

    home = directory / "home"
    if not home.exists():
        home.mkdir()
        for part in Path(pyspark.__file__).parent.iterdir():
            (home / part.name).symlink_to(part)
    return home
