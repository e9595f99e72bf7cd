"""Executes `peacefs test`: answers a script's question about a path by the exit status."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from peacefs.client.control.values import FileStatus

from .session import Session

#: By the option letter of `hdfs dfs -test`.
QUESTIONS: Final[dict[str, Callable[[FileStatus], bool]]] = {
    "e": lambda _status: True,
    "d": lambda status: status.is_directory,
    "f": lambda status: not status.is_directory,
    "s": lambda status: status.length > 0,
    "z": lambda status: status.length == 0,
}


def holds(session: Session, text: str, question: str) -> bool:
    """Return the answer; False if the path does not exist. Raises errors that leave the answer unknown."""
    status = session.place(text).status()
    return status is not None and QUESTIONS[question](status)
