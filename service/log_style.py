"""The format and level of a service's log: the options `--log-format` and `--log-level`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class LogFormat(StrEnum):
    TEXT = "text"
    #: One JSON object per line.
    JSON = "json"


class LogLevel(StrEnum):
    """The minimum level of logged lines."""

    #: Also each request, at every service that it passes.
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"


@dataclass(frozen=True)
class LogStyle:
    format: LogFormat = LogFormat.TEXT
    level: LogLevel = LogLevel.INFO


LOG_STYLE_DEFAULT: Final = LogStyle()
