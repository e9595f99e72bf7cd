"""Reduce Spark's failures to one line: its message and the first cause, without Java's stack.

Pure. Py4J returns a Java exception as text: the call, the exception, its stack, suppressed exceptions, and its
causes, outermost first, each at the beginning of a line.
"""

from __future__ import annotations

import re

_CALLED = "An error occurred while calling "
_CAUSE = "Caused by: "
#: A Spark exception's message says what the class name would. A Java exception's message often does not.
_SPARKS_CLASS = re.compile(r"^(?::\s*)?(?:org\.apache\.spark\.[\w.$]+:\s*)*")
_SQL_STATE = re.compile(r"\s*SQLSTATE: \w+")
_LENGTH_MAX = 300


def in_one_line(said: str) -> str:
    """Return the outermost message, followed by the innermost cause in brackets if it says something else."""
    lines = [line.rstrip() for line in said.splitlines()]
    head = next((_plain(line) for line in lines if line.strip() and not line.startswith(_CALLED)), "")
    causes = [_plain(line.removeprefix(_CAUSE)) for line in lines if line.startswith(_CAUSE)]
    if causes and causes[-1] not in head:
        return f"{head} ({causes[-1]})" if head else causes[-1]
    return head or "it does not say why"


def _plain(line: str) -> str:
    text = _SQL_STATE.sub("", _SPARKS_CLASS.sub("", line)).strip()
    return text if len(text) <= _LENGTH_MAX else f"{text[:_LENGTH_MAX]}…"
