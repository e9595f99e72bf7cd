"""Answers that were given, for whoever asks again."""

from __future__ import annotations

from abc import ABC, abstractmethod


class AnswerReader(ABC):
    """Reads committed state."""

    @abstractmethod
    def answer(self, request: str) -> bytes | None:
        """Return what `remember` was given for a request id."""


class AnswerChanges(ABC):
    """Part of a transaction."""

    @abstractmethod
    def remember(self, request: str, answer: bytes, now_ms: int) -> bool:
        """Keeps an answer for a request id; False, and nothing done, if it has one already."""

    @abstractmethod
    def forget_answers(self, before_ms: int, limit: int, keep: int = 0) -> int:
        """Drops up to `limit` answers given before `before_ms`, oldest first, never the last `keep`. How many."""
