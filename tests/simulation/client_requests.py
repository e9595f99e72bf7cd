"""Requests to the simulated coordinator for which real clients use WebHDFS or REST."""

from __future__ import annotations

from simulation.simulated_network import StreamMessage

from peacefs.protocol.messages import (
    Allocated,
    Layout,
    Message,
)


class OnLink(StreamMessage, frozen=True):
    """A message that a datanode sends over one of its links. Only the last registered link counts."""

    link: str
    message: Message
    coordinator: str = "coordinator"


class Create(Message, frozen=True):
    path: str
    request_id: str
    user: str = "simulated"


class Created(Message, frozen=True):
    token: str
    allocated: Allocated


class Extend(Message, frozen=True):
    path: str
    holder: str
    user: str = "simulated"


class Truncate(Message, frozen=True):
    path: str
    length: int


class Open(Message, frozen=True):
    path: str
    user: str = "simulated"


class Opened(Message, frozen=True):
    token: str
    layout: Layout


class Delete(Message, frozen=True):
    path: str


class Move(Message, frozen=True):
    source: str
    target: str


class ListNames(Message, frozen=True):
    path: str
    user: str = "simulated"


class Names(Message, frozen=True):
    files: list[str]
    directories: list[str]


class BeginRun(Message, frozen=True):
    path: str
    user: str
    request_id: str


class RunBegun(Message, frozen=True):
    location: str


class CreateOverWebHdfs(Message, frozen=True):
    """The first step of a WebHDFS CREATE."""

    path: str
    request_id: str


class Redirected(Message, frozen=True):
    """The answer to a CREATE: its second step goes to the gateway of this datanode."""

    token: str
    node: str


class Stat(Message, frozen=True):
    path: str


class Stated(Message, frozen=True):
    length: int
