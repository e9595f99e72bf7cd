"""`peacefs checkpoint repartition`: change the number of partitions of the state, by Spark on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from peacefs.client.command_line.listing import print_line
from peacefs.client.command_line.session import Session
from peacefs.client.control.addresses import DEFAULT_ADDRESS
from peacefs.protocol.errors import BadRequest, QueryFailed, StartupError
from peacefs.spark_connector.checkpoints.catalogue import read_layout
from peacefs.spark_connector.checkpoints.inspection import Inspection
from peacefs.spark_connector.checkpoints.places import checkpoint_place
from peacefs.spark_connector.checkpoints.repartitioning import (
    RepartitionRequest,
    Rewriter,
    check,
    repartition,
    repartition_locally,
)
from peacefs.spark_connector.spark_failures import in_one_line

from .local_spark import local_spark


def repartition_checkpoint(
    session: Session, text: str, partitions: int, *, no_file_sink: bool, idle_s: float, as_json: bool
) -> None:
    """Repartition and print the outcome. Raises PeacefsError."""
    if not no_file_sink:
        raise BadRequest(
            "Spark leaves no entry of a repartition in the log of a file sink, and the query would fail when it "
            "compacts the log, within ten batches; if the query writes to none, say --no-file-sink"
        )
    place = checkpoint_place(session, text)
    request = RepartitionRequest(place.root, partitions, idle_s)
    # Before Spark is started, which takes seconds.
    check(Inspection(place.tree, read_layout(place.tree, place.root)), partitions)
    with _rewriter(place.owner or DEFAULT_ADDRESS.http, partitions) as by_spark:
        if place.owner:
            done = repartition(session.place(text).files, request, by_spark)
        else:
            done = repartition_locally(request, by_spark)
    if as_json:
        print_line(msgspec.json.encode(done).decode())
        return
    print_line(f"{done.root}: batch {done.batch} repartitions the state to {done.partitions} partitions")
    print_line(f"as it was before: {done.kept}")


@contextmanager
def _rewriter(address: str, partitions: int) -> Iterator[Rewriter]:
    """Yield a function that lets Spark repartition. Raises StartupError if this Spark cannot."""
    with local_spark("repartition", address) as spark:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        manager = getattr(spark, "_streamingCheckpointManager", None)
        if manager is None:
            raise StartupError(f"repartition needs Spark 4.2 or newer; this is {spark.version}")

        def rewrite(uri: str, settings: dict[str, str]) -> None:
            for key, value in settings.items():
                spark.conf.set(key, value)
            try:
                manager.repartition(uri, partitions)
            except (PySparkException, Py4JError) as failure:
                raise QueryFailed(f"Spark cannot repartition the state: {in_one_line(str(failure))}") from None

        yield rewrite
