"""`peacefs checkpoint rehearse`: in a Spark session of its own, on this machine."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from peacefs.client.addresses import DEFAULT_ADDRESS, parse_address
from peacefs.client.command_line.listing import print_line
from peacefs.client.command_line.session import Session
from peacefs.protocol.errors import BadRequest, StartupError
from peacefs.spark_connector.java import find_java, java_environment
from peacefs.spark_connector.session import configure

from .catalogue import read_layout
from .inspection import Inspection
from .places import checkpoint_place
from .rehearsal import rehearse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rehearse_checkpoint(session: Session, text: str, batch: int | None, *, as_json: bool) -> None:
    """Prints rows and seconds of each store. Raises PeacefsError; QueryFailed if Spark cannot load the state."""
    place = checkpoint_place(session, text)
    layout = read_layout(place.tree, place.root)
    if not layout.commits:
        raise BadRequest(f"{place.root}: no batch was done yet")
    wanted = max(layout.commits) if batch is None else batch
    uri = f"{parse_address(place.owner).webhdfs if place.owner else 'file://'}{place.root}"
    with _spark(place.owner or DEFAULT_ADDRESS.http) as spark:
        done = rehearse(spark, uri, Inspection(place.tree, layout), wanted)
    if as_json:
        print_line(msgspec.json.encode({"root": place.root, "batch": wanted, "state": done}).decode())
        return
    for part in done:
        print_line(f"operator {part.operator} {part.name}: {part.store}: {part.rows} rows in {part.seconds:.2f} s")
    rows = sum(part.rows for part in done)
    print_line(f"{place.root}: Spark loads the state of batch {wanted}: {rows} rows")


@contextlib.contextmanager
def _spark(address: str) -> Iterator[SparkSession]:
    """A quiet session. Raises StartupError where there is no Spark or Java."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise StartupError("rehearse needs Spark: install peacefs with the extra `spark`") from None
    with tempfile.TemporaryDirectory() as directory:
        os.environ |= java_environment(find_java(), Path(directory))
        builder = configure(SparkSession.builder.appName("peacefs rehearse"), address).master("local[*]")
        quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "OFF"}
        for key, value in quiet.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()
