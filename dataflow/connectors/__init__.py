"""Connectors: sources and sinks of dataflows outside the program, such as Kafka and directories of files.

Begin with `interface.py`: what a driver asks of a source and of a sink. `source_history.py` decides which rows a
source gives again after a failure, and `sink_progress.py` which rows a sink commits. Both are pure.
`parted_source.py` and `committing_sink.py` run them. One module for each system does the I/O.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .delta_sink import DeltaSink
    from .file_sink import FileSink
    from .file_source import FileSource
    from .kafka_sink import KafkaSink
    from .kafka_source import KafkaSource
    from .lines import HttpSource, SocketSource

__all__ = ["DeltaSink", "FileSink", "FileSource", "HttpSource", "KafkaSink", "KafkaSource", "SocketSource"]

_PLACES = {
    "DeltaSink": "delta_sink",
    "FileSink": "file_sink",
    "FileSource": "file_source",
    "HttpSource": "lines",
    "KafkaSink": "kafka_sink",
    "KafkaSource": "kafka_source",
    "SocketSource": "lines",
}


def __getattr__(name: str) -> Any:
    """Import a connector on first use, so that it does not need the packages of the others."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_PLACES[name]}", __name__), name)
