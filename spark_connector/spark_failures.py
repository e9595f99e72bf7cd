"""Reduce Spark's failures to one line: its own words and the first cause, without Java's stack.

Pure. Py4J gives all of a Java exception as text: what was called, the exception, its stack, what was suppressed,
and its causes from the outermost on, each at the beginning of a line.
"""

from __future__ import annotations

import re

_CALLED = "An error occurred while calling "
_CAUSE = "Caused by: "
#: Exceptions of Spark say in their message what their class would; those of Java often do not.
_SPARKS_CLASS = re.compile(r"^(?::\s*)?(?:org\.apache\.spark\.[\w.$]+:\s*)*")
_SQL_STATE = re.compile(r"\s*SQLSTATE: \w+")
_LENGTH_MAX = 300


def in_one_line(said: str) -> str:
    """The outermost message, and in brackets the innermost cause if it says something else."""
    lines = [line.rstrip() for line in said.splitlines()]
    head = next((_plain(line) for line in lines if line.strip() and not line.startswith(_CALLED)), "")
    causes = [_plain(line.removeprefix(_CAUSE)) for line in lines if line.startswith(_CAUSE)]
    if causes and causes[-1] not in head:
        return f"{head} ({causes[-1]})" if head else causes[-1]
    return head or "it does not say why"


def _plain(line: str) -> str:
    text = _SQL_STATE.sub("", _SPARKS_CLASS.sub("", line)).strip()
    return text if len(text) <= _LENGTH_MAX else f"{text[:_LENGTH_MAX]}…"
