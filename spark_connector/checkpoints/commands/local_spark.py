"""A Spark session on this machine, for commands that need Spark itself."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from peacefs.protocol.errors import StartupError
from peacefs.spark_connector.java import find_java, java_environment
from peacefs.spark_connector.session import configure
from peacefs.spark_connector.spark_failures import in_one_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextlib.contextmanager
def local_spark(command: str, address: str) -> Iterator[SparkSession]:
    """Yield a session that prints nothing. Raises StartupError if Spark or Java is missing."""
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError:
        raise StartupError(f"{command} needs Spark: install peacefs with the extra `spark`") from None
    with tempfile.TemporaryDirectory() as directory:
        os.environ |= java_environment(find_java(), Path(directory))
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = configure(SparkSession.builder.appName(f"peacefs {command}"), address).master("local[*]")
        quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "OFF"}
        for key, value in quiet.items():
            builder = builder.config(key, value)
        try:
            with _errors_in(Path(directory) / "spark.log"):
                spark = builder.getOrCreate()
        except (PySparkException, Py4JError) as failure:
            raise StartupError(f"Spark does not start here: {in_one_line(str(failure))}") from None
        try:
            yield spark
        finally:
            spark.stop()


@contextlib.contextmanager
def _errors_in(log: Path) -> Iterator[None]:
    """Make `log` the standard error of processes that are started in this context.

    Java and Spark's launcher print there before Spark's log settings take effect.
    """
    sys.stderr.flush()
    ours = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)
