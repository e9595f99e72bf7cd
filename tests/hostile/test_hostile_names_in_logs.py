"""Strangers' names in a service's log can neither start a line nor move the cursor."""

from __future__ import annotations

import logging

import pytest

from peacefs.service.log_formats import LineFormatter


@pytest.mark.parametrize(
    "name", ["/a\n2026-01-01 INFO peacefs: all is well", "\r\x1b[2J\x00", "\x9b31m", "\u2028"]
)
def test_log_line_cannot_be_forged_by_a_name(name: str) -> None:
    record = logging.LogRecord("peacefs", logging.WARNING, __file__, 1, "%s failed", (name,), None)
    line = LineFormatter("%(levelname)s %(message)s").format(record)
    assert line.startswith("WARNING ") and line.isprintable() and line.endswith(" failed")


def test_log_keeps_the_lines_of_a_traceback() -> None:
    try:
        raise ValueError("a bug")
    except ValueError as error:
        fault = (type(error), error, error.__traceback__)
    record = logging.LogRecord("peacefs", logging.ERROR, __file__, 1, "a line\n", (), fault)
    text = LineFormatter("%(message)s").format(record)
    assert text.startswith("a line\\n\nTraceback")
    assert text.endswith("ValueError: a bug")
