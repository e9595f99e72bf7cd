"""The base of all messages, and the answers that any of them may get."""

from __future__ import annotations

import msgspec


class Message(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Base of all; decoded by `frames`, which refuses unknown tags and wrong types."""


class Failure(Message, frozen=True):
    """A refusal or fault: `code` names a class of `errors`, `culprit` the datanode it is ascribed to."""

    code: str
    message: str
    culprit: str | None = None


class Done(Message, frozen=True):
    """An answer with nothing to say."""
