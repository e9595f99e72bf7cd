"""What a row of the table of operations on names says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from peacefs.coordinator.operations.files import Files
from peacefs.protocol.messages import Message, NameCall, NameChange
from peacefs.protocol.webhdfs.answers import Answer
from peacefs.protocol.webhdfs.query import RequestQuery

#: Key of the NameRequest in ASGI scopes, for the audit log.
NAME_REQUEST: Final = "peacefs.name-request"


def no_fields(_query: RequestQuery) -> dict[str, Any]:
    return {}


def nothing(_asked: Any) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Form:
    """How an operation is asked for over WebHDFS, and answered."""

    method: str
    name: str
    #: Makes the answer of the operation's result and its message.
    show: Callable[[Any, Any], Answer]
    #: Reads the message's own fields. Raises BadRequest in Hadoop's words.
    fields: Callable[[RequestQuery], dict[str, Any]] = no_fields


@dataclass(frozen=True, slots=True)
class Row:
    """An operation on names: the message that asks for it, and all that doors and audit log know of it."""

    message: type[NameCall]
    #: Carries a message out for someone on a host. Raises what it is refused with.
    run: Callable[[Files, Any, str | None], Awaitable[Any]]
    #: Makes the message that answers a call over frames of the operation's result.
    reply: Callable[[Any], Message]
    forms: tuple[Form, ...] = ()
    #: Returns the other path, or name, that a message is about, for the audit log.
    destination: Callable[[Any], str | None] = nothing

    @property
    def is_read(self) -> bool:
        """Return whether the operation changes nothing."""
        return not issubclass(self.message, NameChange)


@dataclass(frozen=True, slots=True)
class NameRequest:
    """A request over WebHDFS for an operation of the table."""

    row: Row
    form: Form
    asked: NameCall

    async def answer(self, files: Files, host: str | None) -> Answer:
        return self.form.show(await self.row.run(files, self.asked, host), self.asked)
