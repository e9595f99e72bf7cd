"""One Spark session with the connector's settings, for all tests that need a session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.prepared_workers import prepared_python

from peacefs.spark_connector.java import find_java, java_environment
from peacefs.spark_connector.session import configure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def worker_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield the value of PYSPARK_PYTHON for this session and for drivers that tests start."""
    with prepared_python(tmp_path_factory.mktemp("python")) as prepared:
        yield prepared.path


@pytest.fixture(scope="session")
def spark(worker_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as environment:
        for name, value in java_environment(find_java(), tmp_path_factory.mktemp("java")).items():
            environment.setenv(name, value)
        environment.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        environment.setenv("PYSPARK_PYTHON", str(worker_python))
        session = (
            configure(SparkSession.builder, "127.0.0.1:9870")
            .master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "2")
            # Not UTC, because no result may depend on the time zone.
            .config("spark.sql.session.timeZone", "Asia/Kathmandu")
            .getOrCreate()
        )
        yield session
        session.stop()
