"""Report what a start found in the store directory, and how it was treated."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class StoreRecovery:
    """Counts, and the names of files that somebody may want to look at."""

    #: The disk takes no change: what should be removed, cut off or moved is left as it is.
    read_only: bool = False
    replicas: int = 0
    #: Chunks whose writing had not ended: removed.
    unfinished: int = 0
    #: Older versions beside a newer one: files removed, records left to compaction.
    stale: int = 0
    #: Bytes behind the last readable record of a segment: cut off.
    torn_bytes: int = 0
    #: Bytes between readable records: passed over; what else is in those segments will be copied elsewhere.
    damaged_bytes: int = 0
    #: Chunk files whose size contradicts their name: moved to damaged/.
    damaged_files: list[str] = field(default_factory=list)
    #: Entries that no version of this store writes: left alone.
    foreign: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """One line for the log: how many replicas, and whatever was not as it should be."""
        found = {
            "unfinished and removed": self.unfinished,
            "stale": self.stale,
            "torn bytes cut off": self.torn_bytes,
            "damaged bytes passed over": self.damaged_bytes,
            "damaged files moved aside": len(self.damaged_files),
            "foreign files left alone": len(self.foreign),
        }
        return ", ".join(
            [f"{self.replicas} replicas", *(f"{count} {what}" for what, count in found.items() if count)]
        )
