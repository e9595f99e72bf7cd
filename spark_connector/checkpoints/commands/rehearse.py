"""`peacefs checkpoint rehearse`: load the state in a Spark session on this machine."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from peacefs.client.command_line.listing import print_line
from peacefs.client.command_line.session import Session
from peacefs.client.control.addresses import DEFAULT_ADDRESS
from peacefs.protocol.errors import QueryFailed, StartupError
from peacefs.spark_connector.checkpoints.catalogue import read_layout
from peacefs.spark_connector.checkpoints.inspection import Inspection
from peacefs.spark_connector.checkpoints.places import checkpoint_place
from peacefs.spark_connector.checkpoints.rehearsal import rehearse, require_batch
from peacefs.spark_connector.java import find_java, java_environment
from peacefs.spark_connector.session import configure
from peacefs.spark_connector.spark_failures import in_one_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rehearse_checkpoint(session: Session, text: str, batch: int | None, *, as_json: bool) -> None:
    """Print rows and seconds of each store. Raises PeacefsError; QueryFailed if Spark cannot load the state."""
    place = checkpoint_place(session, text)
    inspection = Inspection(place.tree, read_layout(place.tree, place.root))
    wanted = require_batch(inspection, batch)
    with _spark(place.owner or DEFAULT_ADDRESS.http) as spark:
        try:
            done = rehearse(spark, place.tree.uri(place.root), inspection, wanted)
        except QueryFailed as failure:
            advice = "`peacefs checkpoint verify` names the file and the last good batch"
            raise QueryFailed(f"{place.root}: {failure.message}; {advice}") from None
    if as_json:
        print_line(msgspec.json.encode({"root": place.root, "batch": wanted, "state": done}).decode())
        return
    for part in done:
        print_line(f"operator {part.operator} {part.name}: {part.store}: {part.rows} rows in {part.seconds:.2f} s")
    rows = sum(part.rows for part in done)
    print_line(f"{place.root}: Spark loads the state of batch {wanted}: {rows} rows")


@contextlib.contextmanager
def _spark(address: str) -> Iterator[SparkSession]:
    """Yield a session that prints nothing. Raises StartupError if Spark or Java is missing."""
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError:
        raise StartupError("rehearse needs Spark: install peacefs with the extra `spark`") from None
    with tempfile.TemporaryDirectory() as directory:
        os.environ |= java_environment(find_java(), Path(directory))
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = configure(SparkSession.builder.appName("peacefs rehearse"), address).master("local[*]")
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
