"""Formats of a service's log: text and JSON. An event is always one line, even with hostile input.

Lines about a request contain its id, taken from the current trace context (`protocol.trace_context`).
"""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime

from peacefs.protocol.trace_context import current_id
from peacefs.service.log_style import LogFormat

_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
# ASCII only; control characters are escaped.
_encode = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode


class LineFormatter(logging.Formatter):
    """Text lines. Control characters are escaped, so that logged input cannot forge a line."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        request = current_id()
        line = super().formatMessage(record) + (f" [{request}]" if request else "")
        return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), line)


class JsonFormatter(logging.Formatter):
    """One JSON object per line: `time` (UTC), `level`, `logger`, `service`, `message`; optionally `request` and
    `exception`.
    """

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "service": self._service,
            "message": record.getMessage(),
        }
        if request := current_id():
            fields["request"] = request
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return _encode(fields)


def formatter(form: LogFormat, service: str) -> logging.Formatter:
    if form is LogFormat.JSON:
        return JsonFormatter(service)
    return LineFormatter(_FORMAT)
