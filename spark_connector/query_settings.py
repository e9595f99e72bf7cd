"""Settings that fit one kind of query, beside those for every query (`session`).

No format of state checkpoints fits every query: Spark 4.3 refuses Real-time Mode with format 1, and with format 2
a query with a file sink cannot start again after some crashes (decisions 7 and 64).
`tests/spark/test_query_settings.py` shows each reason with the installed Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_STREAMING = "spark.sql.streaming."
_FORMAT = _STREAMING + "stateStore.checkpointFormatVersion"


@dataclass(frozen=True, slots=True)
class Setting:
    """One configuration key. `since` is the Spark version that introduced it, ANY_SPARK for Hadoop's own keys."""

    key: str
    value: str
    since: str
    reason: str


_FORMAT_1 = Setting(
    _FORMAT,
    "1",
    "4.0.0",
    "with format 2 a query that died between the commit of a file sink and its own fails at every start",
)

REAL_TIME: Final = "real-time"
REAL_TIME_SINCE: Final = (4, 1)
#: The settings for each value of `query` in `configure`, and of `peacefs spark conf --query`.
QUERIES: Final[Mapping[str, tuple[Setting, ...]]] = {
    "micro-batch": (_FORMAT_1,),
    "join": (
        _FORMAT_1,
        Setting(
            _STREAMING + "join.stateFormatVersion",
            "3",
            "4.1.0",
            "a join of two streams keeps one store a partition, not four, so a batch writes a quarter of the "
            "files; a checkpoint that exists keeps its own version",
        ),
    ),
    REAL_TIME: (
        Setting(
            _FORMAT,
            "2",
            "4.0.0",
            "Spark 4.3 refuses Real-time Mode with format 1: a batch that is repeated with other rows would use "
            "the files of its failed attempt",
        ),
    ),
}
