"""The form in which services write their logs: what `--log-format` and `--log-level` say."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class LogFormat(StrEnum):
    """The form of a line."""

    TEXT = "text"
    #: One JSON object.
    JSON = "json"


class LogLevel(StrEnum):
    """The least important lines that are written."""

    #: Each request, too, at every service that it passes.
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"


@dataclass(frozen=True)
class LogStyle:
    """The format and the level of a service's log."""

    format: LogFormat = LogFormat.TEXT
    level: LogLevel = LogLevel.INFO


LOG_STYLE_DEFAULT: Final = LogStyle()
