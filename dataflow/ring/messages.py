"""Messages on the ring. Connections keep their order; a broken one loses those in transit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from .hashed_rows import HashedRows
from .tokens import Interval
from .view import RingMember

#: The program that started the query, with mappers and sinks.
EDGE = "edge"


@dataclass(frozen=True, slots=True)
class News:
    """Members whose entries have changed since the sender last told the receiver."""

    members: tuple[RingMember, ...]


@dataclass(frozen=True, slots=True)
class Beat:
    """The sender is alive. Sent to the nodes that would take over."""


@dataclass(frozen=True, slots=True)
class Tuples:
    """Rows of batch `number` in `spans`. The batches between `after` and that one have no rows in `spans`."""

    mapper: str
    #: Counts the messages of this mapper to this node.
    serial: int
    after: int
    number: int
    stamp_us: int
    spans: tuple[Interval, ...]
    rows: HashedRows
    #: Number of rows that this node was sent before and has not acknowledged yet.
    unheld_rows: int = 0


@dataclass(frozen=True, slots=True)
class TuplesHeld:
    """The node has processed or backed up the messages of a mapper up to this one."""

    mapper: str
    serial: int


@dataclass(frozen=True, slots=True)
class Result:
    """Rows made from an interval's part of a mapper's batches above `after` and up to `number`."""

    mapper: str
    after: int
    number: int
    interval: Interval
    rows: tuple[pa.RecordBatch, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(int(batch.nbytes) for batch in self.rows)


@dataclass(frozen=True, slots=True)
class Results:
    serial: int
    result: Result


@dataclass(frozen=True, slots=True)
class ResultsTaken:
    """The sink has the results of this node up to this one."""

    serial: int


@dataclass(frozen=True, slots=True)
class PeerCheckpoint:
    """The changes of an interval's state since its state at `base`, or the whole state if that is None."""

    interval: Interval
    number: int
    base: Mapping[str, int] | None
    coverage: Mapping[str, int]
    #: The latest time of a tuple that it contains.
    stamp_us: int
    #: Results of the contained batches that the sink has not taken.
    results: tuple[Result, ...]
    entries: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class CopyWanted:
    """The sender lacks the state of an interval, or the base of its next checkpoint."""

    interval: Interval
    #: True: the sender owns the interval, and asks all holders. False: it asks the owner.
    as_owner: bool = False


@dataclass(frozen=True, slots=True)
class CopyRefused:
    """The sender does not have the whole state of an interval either."""

    interval: Interval


@dataclass(frozen=True, slots=True)
class KeptTuples:
    """A piece of the sender's backup, for an owner that lacks it. The last piece is marked."""

    interval: Interval
    mapper: str
    number: int
    stamp_us: int = 0
    rows: HashedRows | None = None
    last: bool = False


@dataclass(frozen=True, slots=True)
class Established:
    """The sender could own or hold an interval now: it has the state, and all tuples since."""

    interval: Interval
    #: The holders before and after the change that waits for this.
    now: tuple[str, ...]
    next: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Relieve:
    """Ask the next node to relieve overloaded nodes. Each node that passes it on adds its own name."""

    asking: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NobodyRelieves:
    """All nodes have enough to do. The first node that asked then takes a spare, if there is one."""


@dataclass(frozen=True, slots=True)
class Invite:
    """Ask a spare to join with a token."""

    token: int


@dataclass(frozen=True, slots=True)
class MayLeave:
    """Ask the next neighbour whether it has room for all the work of the sender."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Allow the receiver to leave the ring once others have its state."""


@dataclass(frozen=True, slots=True)
class ProcessEnded:
    """The edge reports that the process of a node has ended, whatever of it is still in transit."""

    node: str


@dataclass(frozen=True, slots=True)
class StateLost:
    """The state or the tuples of an interval are lost, because too many neighbours died at once."""

    interval: Interval
    reason: str


@dataclass(frozen=True, slots=True)
class Observed:
    """A message for the user who runs the query, such as that a mapper's clock is slow."""

    text: str


#: Messages that a busy node must see before the rows that wait for it. Their order relative to other messages does
#: not matter.
URGENT = (ResultsTaken,)

RingMessage = (
    News
    | Beat
    | Tuples
    | TuplesHeld
    | Results
    | ResultsTaken
    | PeerCheckpoint
    | CopyWanted
    | CopyRefused
    | KeptTuples
    | Established
    | Relieve
    | NobodyRelieves
    | Invite
    | MayLeave
    | Leave
    | ProcessEnded
    | StateLost
    | Observed
)


# -- between a node's process and the program that started it ---------------------------------------------


@dataclass(frozen=True, slots=True)
class NodeStarted:
    """A node listens, and can be given a place."""

    name: str
    address: str
    #: The process that it runs in.
    process: int


@dataclass(frozen=True, slots=True)
class BeginNode:
    """The members of the ring, with addresses. `begins`: True if the query begins with them."""

    members: tuple[RingMember, ...]
    begins: bool


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """Statistics of a node, for measurements."""

    processor_s: float
    processed_rows: int
    replayed_rows: int
    waiting_rows: int
    backup_bytes: int
    state_keys: int
    checkpoint_bytes: int
    checkpoint_share: float
    #: Number of fragments that it owns.
    owned: int


@dataclass(frozen=True, slots=True)
class NodeFailed:
    """A function of the query raised an error: the query cannot continue."""

    reason: str


HostedMessage = RingMessage | NodeStarted | BeginNode | NodeFigures | NodeFailed
