"""The classes of the table of operations on names."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from peacefs.coordinator.operations.files import Files
from peacefs.protocol.messages import Message, NameCall, NameChange
from peacefs.protocol.webhdfs.answers import Answer
from peacefs.protocol.webhdfs.query import RequestQuery

#: The key of the NameRequest in an ASGI scope, for the audit log.
NAME_REQUEST: Final = "peacefs.name-request"


def no_fields(_query: RequestQuery) -> dict[str, Any]:
    return {}


def no_destination(_asked: Any) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Form:
    """The request and the answer of an operation in WebHDFS."""

    method: str
    name: str
    #: Makes the answer from the operation's result and the message.
    show: Callable[[Any, Any], Answer]
    #: Reads the message's own fields. Raises BadRequest in Hadoop's words.
    fields: Callable[[RequestQuery], dict[str, Any]] = no_fields


@dataclass(frozen=True, slots=True)
class Row:
    """One operation on names, as frames, WebHDFS and the audit log need to know it."""

    message: type[NameCall]
    #: Carries out a message from a host. Raises the operation's errors.
    run: Callable[[Files, Any, str | None], Coroutine[Any, Any, Any]]
    #: Makes the answer over frames from the operation's result.
    reply: Callable[[Any], Message]
    forms: tuple[Form, ...] = ()
    #: Returns the second path or name in a message, for the audit log.
    destination: Callable[[Any], str | None] = no_destination

    @property
    def is_read(self) -> bool:
        """Whether the operation changes nothing."""
        return not issubclass(self.message, NameChange)


@dataclass(frozen=True, slots=True)
class NameRequest:
    """A WebHDFS request for an operation of the table."""

    row: Row
    form: Form
    asked: NameCall

    async def answer(self, files: Files, host: str | None) -> Answer:
        return self.form.show(await self.row.run(files, self.asked, host), self.asked)
