"""The plan of a program that is killed while it writes a stream log, `log_dataflow` or `log_query`."""

from __future__ import annotations

import msgspec


class LogPlan(msgspec.Struct, frozen=True):
    """Addresses of logs, and a `directory` for the program's own files."""

    coordinator: str
    user: str
    directory: str
    source: str
    target: str
    checkpoint: str
    #: A dataflow whose source pauses in the middle until the dataflow is killed.
    holds: bool = False
