"""Messages on the ring. Connections keep their order; a broken one loses what is on its way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from .hashed_rows import HashedRows
from .tokens import Interval
from .view import RingMember

#: Mappers and sinks: the program that started the query.
EDGE = "edge"


@dataclass(frozen=True, slots=True)
class News:
    """Members as the sender knows them, where that has changed since it told the receiver last."""

    members: tuple[RingMember, ...]


@dataclass(frozen=True, slots=True)
class Beat:
    """The sender is alive. Goes to those that would take over."""


@dataclass(frozen=True, slots=True)
class Tuples:
    """All rows of a mapper in `spans` with numbers above `after`, up to `number`: they are of that batch."""

    mapper: str
    #: Counts the messages of this mapper to this node.
    serial: int
    after: int
    number: int
    stamp_us: int
    spans: tuple[Interval, ...]
    rows: HashedRows
    #: Rows that were sent to this node before, and that it has not acknowledged yet.
    unheld_rows: int = 0


@dataclass(frozen=True, slots=True)
class TuplesHeld:
    """The node has processed or backed up the messages of a mapper up to this one."""

    mapper: str
    serial: int


@dataclass(frozen=True, slots=True)
class Result:
    """Rows made of an interval's part of the batches after one, up to another, of a mapper."""

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
    """The changes of an interval's state since its state at `base`, or all of it if that is None."""

    interval: Interval
    number: int
    base: Mapping[str, int] | None
    coverage: Mapping[str, int]
    #: The latest time of a tuple that is contained.
    stamp_us: int
    #: Results that the sink has not taken, of batches that are contained.
    results: tuple[Result, ...]
    entries: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class CopyWanted:
    """The sender lacks the state of an interval, or what its next checkpoint is based on."""

    interval: Interval
    #: True: it owns the interval, and asks whoever has it; else it asks the owner.
    as_owner: bool = False


@dataclass(frozen=True, slots=True)
class CopyRefused:
    """The sender does not have the whole state of an interval either."""

    interval: Interval


@dataclass(frozen=True, slots=True)
class KeptTuples:
    """A piece of the sender's backup, for an owner that lacks it; the last one says so."""

    interval: Interval
    mapper: str
    number: int
    stamp_us: int = 0
    rows: HashedRows | None = None
    last: bool = False


@dataclass(frozen=True, slots=True)
class Established:
    """The sender could own an interval now, or keep it: it has the state, and all tuples since."""

    interval: Interval
    #: The holders before and after the change that waits for it.
    now: tuple[str, ...]
    next: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Relieve:
    """Nodes that have too much to do: the first asks, and each adds itself when it asks the next."""

    asking: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NobodyRelieves:
    """All nodes have enough to do: who asked first takes a spare, if there is one."""


@dataclass(frozen=True, slots=True)
class Invite:
    """Ask a spare to join with a token."""

    token: int


@dataclass(frozen=True, slots=True)
class MayLeave:
    """Ask the next neighbour whether it has room for all that the sender does."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Let the receiver leave the ring once others have its state."""


@dataclass(frozen=True, slots=True)
class ProcessEnded:
    """Learn from the edge that the process of a node has ended, whatever of it is still on its way."""

    node: str


@dataclass(frozen=True, slots=True)
class StateLost:
    """The state or the tuples of an interval are lost, since too many neighbours died at once."""

    interval: Interval
    reason: str


@dataclass(frozen=True, slots=True)
class Observed:
    """Something that whoever runs the query is to know, as that a mapper's clock is behind."""

    text: str


#: Messages that a busy node has to see before the rows that wait for it. Their order among others is of no matter.
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
    """A node listens, and may be given a place."""

    name: str
    address: str
    #: The process that it runs in.
    process: int


@dataclass(frozen=True, slots=True)
class BeginNode:
    """The members of the ring, with addresses; `begins`: the query begins with them."""

    members: tuple[RingMember, ...]
    begins: bool


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """The figures of a node, for those who measure."""

    processor_s: float
    processed_rows: int
    replayed_rows: int
    waiting_rows: int
    backup_bytes: int
    state_keys: int
    checkpoint_bytes: int
    checkpoint_share: float
    #: Fragments that it owns.
    owned: int


@dataclass(frozen=True, slots=True)
class NodeFailed:
    """A function of the query raised an error: the query cannot go on."""

    reason: str


HostedMessage = RingMessage | NodeStarted | BeginNode | NodeFigures | NodeFailed
