"""The simulated network: its faults, and connections that carry real frames."""

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
    """A message on a dedicated connection, which never duplicates messages."""


class SimulatedConnection(fx.Connection):
    """One end of a connection. It encodes everything it sends as real frames, byte for byte."""

    def __init__(self, node: Node, peer: str) -> None:
        self.node = node
        self.peer = peer
        self.other: SimulatedConnection
        self.address: fx.Address | None = None
        self.inbox: deque[Frame] = deque()
        self.reader = FrameReader()
        self.sealer: Sealer | None = None
        #: The task that waits for a message, and its turn at that time. A task that gave up has a later turn.
        self.receiver: tuple[Task, int] | None = None
        self.reads_descriptor = False
        #: How much of a payload the receiver reads together with the head. `rest` is what it has not read yet.
        self.payload_max: int | None = None
        #: Returns whether a receiver of several frames expects another frame after the given one.
        self.more_after: Callable[[Frame], bool] | None = None
        self.rest = b""
        self.broken = False
        #: A message of the byte stream was lost: nothing more arrives, and neither end is told.
        self.stalled = False
        self.arrives_at_s = 0.0
        #: Both ends are on the same host, so open files can be passed along with messages.
        self.is_local = False
        self.descriptors: deque[SharedDescriptor] = deque()

    def seal(self, keys: FrameKeys | None) -> None:
        if keys is not None:
            self.sealer, self.reader.opener = Sealer(keys.sending), Opener(keys.receiving)

    def wire(self, message: Message, payload: bytes) -> bytes:
        head = encode(message, len(payload))
        return head + payload if self.sealer is None else b"".join(self.sealer.seal(head, payload))

    def wire_of(self, frames: Sequence[Frame]) -> bytes:
        """Return the bytes of several frames that are sent together, sealed as one."""
        sent = b"".join(encode(each.message, len(each.payload), each.tag) + each.payload for each in frames)
        return sent if self.sealer is None else b"".join(self.sealer.seal(sent))

    def begin(self, frame: Frame) -> Frame:
        """Return the part of an arrived frame that the receiver reads first."""
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
    """The probabilities of the faults of messages.

    Messages of a byte stream are never duplicated or reordered. If one is lost, its connection stalls; if one is
    late, later ones wait behind it. If one is cut, a part of it arrives and the connection breaks.
    """

    lose: float = 0.0
    duplicate: float = 0.0
    delay: float = 0.0
    delay_s_max: float = 0.0
    cut: float = 0.0
    #: The probability that a connecting node is on the host of the other end.
    one_host: float = 0.0
    #: Pairs of nodes that cannot reach each other; neither is told.
    separated: set[frozenset[str]] = field(default_factory=set)
    #: (sender, receiver) pairs whose control calls do not arrive. The opposite direction works.
    one_way: set[tuple[str, str]] = field(default_factory=set)

    def separates(self, one: Node, other: Node) -> bool:
        return frozenset((one.name, other.name)) in self.separated

    def carries(self, sender: str, receiver: str) -> bool:
        """Return whether control calls from the first node reach the second."""
        return frozenset((sender, receiver)) not in self.separated and (sender, receiver) not in self.one_way


def end_of(connection: fx.Connection) -> SimulatedConnection:
    assert isinstance(connection, SimulatedConnection)
    return connection
