"""Epochs and floors: that no number is drawn twice, and that nothing precious is taken for garbage.

A datanode remembers the highest epoch in which a coordinator accepted it. From one that this coordinator has not
accepted yet, an epoch that is not below ours tells that somebody else had it: the metadata was restored from
an older backup. Then our numbers move above all that were ever drawn, and the floor is held, so that what
datanodes hold from the time after the backup is kept. It also remembers the last commit that it has heard of: a
later one than the metadata had when this coordinator began is missing, and that is kept until an operator accepts
it. No clock inside: `now_s` is monotonic.
"""

from __future__ import annotations

from collections import deque

from peacefs.protocol.ids import ChunkId, NodeId, Numbering, first_of_epoch
from peacefs.protocol.limits import write_token_lifetime_s

from .store import Metadata


class Epochs:
    """The numbering of the epoch that this coordinator begins, and the floor that follows it."""

    def __init__(self, metadata: Metadata, *, settled_after_s: float = write_token_lifetime_s) -> None:
        self._metadata = metadata
        self._settled_after_s = settled_after_s
        #: The last commit of those before us.
        self._found_tx = metadata.tx_durable
        self.numbering = Numbering(metadata.begin_epoch())
        self._accepted: set[NodeId] = set()
        self._drawn_at: deque[tuple[float, ChunkId]] = deque()

    def accept(self, node: NodeId, epoch_seen: int, commit_seen: int = 0) -> bool:
        """To be called before a datanode is told our epoch. True when it shows that the metadata is older.

        Where it shows a commit that is missing, `Reader.lacks_commits` says so from then on.
        Raises MetadataFull, and is to be called again then; MetadataFault.
        """
        limit = self.numbering.epoch if node in self._accepted else self.numbering.epoch - 1
        # What one that we have accepted has heard of may be our own commit.
        shows_missing = commit_seen > self._found_tx and node not in self._accepted
        if epoch_seen <= limit and not shows_missing:
            self._accepted.add(node)
            return False
        self._metadata.hold_floor(commits_are_missing=shows_missing)
        if epoch_seen > limit:
            # The same object: whoever draws numbers has it.
            self.numbering.epoch = self._metadata.begin_epoch(epoch_seen)
            self.numbering.drawn = 0
        # Not before: where there was no room for the commit, the datanode comes again and shows the same.
        self._accepted.add(node)
        return True

    def settled(self, now_s: float) -> ChunkId | None:
        """To be called now and then: the number below which no token lives any more, where there is a new one.

        Every number drawn a token's lifetime ago is either in the namespace by now or never will be.
        """
        self._drawn_at.append((now_s, first_of_epoch(self.numbering.epoch) | self.numbering.drawn))
        floor = None
        while self._drawn_at and self._drawn_at[0][0] <= now_s - self._settled_after_s:
            floor = self._drawn_at.popleft()[1]
        return floor
