"""The base of all messages, and the answers that any of them may get."""

from __future__ import annotations

import msgspec


class Message(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Base of all; decoded by `frames`, which refuses unknown tags and wrong types."""


class TracedMessage(Message, frozen=True, kw_only=True):
    """Base of what is asked for somebody: `trace` is the id of that request, for the logs of all who serve it.

    Where the request is traced, `span` is the id of the span within which this is asked. A peer of an earlier
    version passes over both.
    """

    trace: str = ""
    span: str = ""


class Failure(Message, frozen=True):
    """A refusal or fault: `code` names a class of `errors`, `culprit` the datanode it is ascribed to."""

    code: str
    message: str
    culprit: str | None = None


class Done(Message, frozen=True):
    """An answer with nothing to say."""
