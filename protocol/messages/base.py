"""The base classes of messages, and the answers that any message may get."""

from __future__ import annotations

import msgspec


class Message(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Base of all messages. `frames` decodes them and rejects unknown tags and wrong types."""


class TracedMessage(Message, frozen=True, kw_only=True):
    """Base of messages that are sent on behalf of a request; `trace` is the request's id for logs.

    If the request is traced, `span` is the id of the sender's span. Peers of earlier versions ignore both.
    """

    trace: str = ""
    span: str = ""


class Failure(Message, frozen=True):
    """A refusal or fault. `code` names a class of `errors`, `culprit` the datanode that caused it, if known."""

    code: str
    message: str
    culprit: str | None = None


class Done(Message, frozen=True):
    """A successful answer without content."""
