"""The simulated network: the faults that may befall messages, and connections over which real frames go."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from simulation.shared_descriptors import SharedDescriptor

from peacefs.protocol.frames import Frame, FrameReader, encode
from peacefs.protocol.messages import Message
from peacefs.protocol.seals import FrameKeys, Opener, Sealer
from peacefs.runtime import effects as fx

if TYPE_CHECKING:
    from simulation.world import Node, Task


class StreamMessage(Message, frozen=True):
    """Base of what is said on a connection of its own, where nothing comes twice."""


class SimulatedConnection(fx.Connection):
    """One end of a connection. What it sends goes through real frames, byte for byte."""

    def __init__(self, node: Node, peer: str) -> None:
        self.node = node
        self.peer = peer
        self.other: SimulatedConnection
        self.address: fx.Address | None = None
        self.inbox: deque[Frame] = deque()
        self.reader = FrameReader()
        self.sealer: Sealer | None = None
        #: The task that waits for a message, and in which of its turns: it may have given up since.
        self.receiver: tuple[Task, int] | None = None
        self.reads_descriptor = False
        #: So much of a payload the receiver takes with its head, and what it has not taken of it yet.
        self.payload_max: int | None = None
        #: Returns whether a receiver of several frames takes another one after this one.
        self.more_after: Callable[[Frame], bool] | None = None
        self.rest = b""
        self.broken = False
        #: A lost message of a byte stream: nothing arrives any more, and nobody is told.
        self.stalled = False
        self.arrives_at_s = 0.0
        #: Between processes of one host: files come along, each with the message that says so.
        self.is_local = False
        self.descriptors: deque[SharedDescriptor] = deque()

    def seal(self, keys: FrameKeys | None) -> None:
        if keys is not None:
            self.sealer, self.reader.opener = Sealer(keys.sending), Opener(keys.receiving)

    def wire(self, message: Message, payload: bytes) -> bytes:
        head = encode(message, len(payload))
        return head + payload if self.sealer is None else b"".join(self.sealer.seal(head, payload))

    def wire_of(self, frames: Sequence[Frame]) -> bytes:
        """Return the bytes of several frames that are sent together, under one seal."""
        sent = b"".join(encode(each.message, len(each.payload), each.tag) + each.payload for each in frames)
        return sent if self.sealer is None else b"".join(self.sealer.seal(sent))

    def begin(self, frame: Frame) -> Frame:
        """Return how much of an arrived frame the receiver takes first."""
        assert not self.rest, "the payload before has not been received to its end"
        if self.payload_max is None:
            return frame
        taken, self.rest = bytes(frame.payload[: self.payload_max]), bytes(frame.payload[self.payload_max :])
        return frame._replace(payload=taken, unread=len(self.rest))

    def take(self, count: int) -> bytes:
        assert 0 < count <= len(self.rest), "more is wanted than the payload has"
        piece, self.rest = self.rest[:count], self.rest[count:]
        return piece


@dataclass
class Network:
    """The faults that may befall a message, each with a chance of its own.

    A message of a byte stream cannot come twice, nor overtake another: to be lost is to stall its connection, and
    one that is late holds up those behind it. To be cut is to arrive in part; then the connection breaks.
    """

    lose: float = 0.0
    duplicate: float = 0.0
    delay: float = 0.0
    delay_s_max: float = 0.0
    cut: float = 0.0
    #: The chance that a connecting node is on the host of the other end.
    one_host: float = 0.0
    #: Pairs of nodes between which nothing arrives any more, and neither is told.
    separated: set[frozenset[str]] = field(default_factory=set)
    #: Pairs of sender and receiver of control calls: those of the one do not arrive, the other's do.
    one_way: set[tuple[str, str]] = field(default_factory=set)

    def separates(self, one: Node, other: Node) -> bool:
        return frozenset((one.name, other.name)) in self.separated

    def carries(self, sender: str, receiver: str) -> bool:
        """Return whether control calls of the one arrive at the other."""
        return frozenset((sender, receiver)) not in self.separated and (sender, receiver) not in self.one_way


def end_of(connection: fx.Connection) -> SimulatedConnection:
    assert isinstance(connection, SimulatedConnection)
    return connection
