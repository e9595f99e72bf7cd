"""What a start found in the store directory, and what it did about it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class StoreRecovery:
    """Counts, and the names of files that an operator may want to inspect."""

    #: True if the disk is read-only: nothing is removed, truncated or moved.
    read_only: bool = False
    replicas: int = 0
    #: Chunks whose write had not ended: removed.
    unfinished: int = 0
    #: Older versions beside a newer one: files are removed, records left to compaction.
    stale: int = 0
    #: Bytes after the last readable record of a segment: cut off.
    torn_bytes: int = 0
    #: Bytes between readable records: skipped; compaction will copy the rest of those segments elsewhere.
    damaged_bytes: int = 0
    #: Chunk files whose size contradicts their name: moved to damaged/.
    damaged_files: list[str] = field(default_factory=list)
    #: Entries that no version of this store writes: left alone.
    foreign: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """Return one line for the log: the number of replicas, and everything unusual."""
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
