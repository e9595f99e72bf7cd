"""Load the state of a batch with Spark's own state reader, to prove that a restart can load it.

Reads every store of every stateful operator to its end, and counts the rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from peacefs.protocol.errors import BadRequest, CheckpointDamaged, CheckpointTooNew, QueryFailed
from peacefs.spark_connector.spark_failures import in_one_line

from .catalogue import state_format
from .formats.operators import StatefulOperator
from .inspection import Inspection
from .tree import TreeEntry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TIMERS = "TimerState"
# The reader finds versions with unique ids only with this setting.
_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"


def require_batch(inspection: Inspection, batch: int | None) -> int:
    """Return the batch to rehearse: `batch`, or if None the latest committed one.

    Raises BadRequest if the batch was not done, CheckpointDamaged if its commit or an operator's metadata cannot
    be read: Spark's own message would be far longer.
    """
    layout = inspection.layout
    if not layout.commits:
        raise BadRequest(f"{layout.root}: no batch was done yet")
    wanted = max(layout.commits) if batch is None else batch
    if wanted not in layout.commits:
        kept = f"{min(layout.commits)} to {max(layout.commits)}"
        raise BadRequest(f"{layout.root}: batch {wanted} is none of those that were done and are kept: {kept}")
    _look(inspection, inspection.commit, layout.commits[wanted])
    for files in layout.operators.values():
        for entry in files.metadata.values():
            _look(inspection, inspection.operator, entry)
    return wanted


def _look(inspection: Inspection, parse: Callable[[TreeEntry], object], entry: TreeEntry) -> None:
    try:
        parse(entry)
    except CheckpointTooNew:
        return  # The installed Spark may know it.
    except CheckpointDamaged as fault:
        path = inspection.layout.relative(entry)
        raise CheckpointDamaged(f"{inspection.layout.root}: {path} is damaged: {fault.message}") from None


class Rehearsed(msgspec.Struct, frozen=True):
    """A store, or a state variable of `transformWithState`, that was loaded."""

    operator: int
    name: str
    store: str
    rows: int
    seconds: float


class _Variable(msgspec.Struct, frozen=True, rename="camel"):
    state_name: str
    state_variable_type: str


class _Properties(msgspec.Struct, frozen=True, rename="camel"):
    state_variables: list[_Variable] = []


def rehearse(spark: SparkSession, uri: str, inspection: Inspection, batch: int) -> list[Rehearsed]:
    """Load the state of `batch`. `uri` is the checkpoint's URI for Spark. Raises QueryFailed."""
    spark.conf.set(_FORMAT, str(state_format(inspection.layout) or 1))
    done = []
    for number, files in sorted(inspection.layout.operators.items()):
        made = [when for when in files.metadata if when <= batch]
        if not made:
            raise QueryFailed(
                f"operator {number} has no metadata that tells its stores, which Spark's reader of state needs; "
                "a Spark before 4.0 writes none, a start of the query with a newer one does"
            )
        operator = inspection.operator(files.metadata[max(made)])
        for store, name, options in _parts(operator):
            began = time.monotonic()
            rows = _count(spark, uri, {"batchId": batch, "operatorId": number} | options)
            seconds = round(time.monotonic() - began, 3)
            done.append(Rehearsed(number, operator.operator_info.operator_name, name or store, rows, seconds))
    return done


def _parts(operator: StatefulOperator) -> list[tuple[str, str, dict[str, Any]]]:
    """Return store, variable and reader options for each part of the operator's state."""
    properties = msgspec.json.decode(operator.operator_properties_json or "{}", type=_Properties)
    parts: list[tuple[str, str, dict[str, Any]]] = []
    for variable in properties.state_variables:
        of_timers = variable.state_variable_type == _TIMERS
        asked: dict[str, Any] = (
            {"readRegisteredTimers": True} if of_timers else {"stateVarName": variable.state_name}
        )
        parts.append(("default", variable.state_name, asked))
    if not parts:
        parts = [(info.store_name, "", {"storeName": info.store_name}) for info in operator.state_store_info]
    return parts


def _count(spark: SparkSession, uri: str, options: dict[str, Any]) -> int:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        rows: int = spark.read.format("statestore").options(**options).load(uri).count()
    except (PySparkException, Py4JError) as failure:
        what = f"the state of operator {options['operatorId']} in batch {options['batchId']}"
        raise QueryFailed(f"Spark cannot load {what}: {in_one_line(str(failure))}") from None
    return rows
