"""A fragment: an interval's state, its coverage, and the tuples since, as one node has them.

Owner and neighbours have the same kind of fragment; the owner processes what the others back up. So whoever takes
over has everything already, and nothing is sent (SMR V-B, VII).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .coverage import Coverage
from .keyed_table import KeyedTable
from .messages import Result
from .tokens import Interval
from .tuple_backup import TupleBackup


@dataclass
class RunningCut:
    """A checkpoint that is being made of an inactive fragment, with all that it says."""

    number: int
    base: Coverage
    coverage: Coverage
    stamp_us: int
    results: tuple[Result, ...]
    #: Holders that get all of the state, since they lack what the changes are based on.
    full_for: frozenset[str]


@dataclass
class Fragment:
    interval: Interval
    table: KeyedTable
    #: True if the state is there: as of the coverage, however old that is.
    has_state: bool
    #: True unless the fragment was cut out of another one, and no checkpoint of just it has come since.
    fresh: bool = True
    #: True on the owner.
    primary: bool = False
    #: True while the owner waits for a copy of what it lacks, from the nodes named.
    waits_for: set[str] = field(default_factory=set)
    coverage: dict[str, int] = field(default_factory=dict)
    stamp_us: int = 0
    #: For each mapper: all of its batches above this number have come here, up to that in `upto`.
    begins: dict[str, int] = field(default_factory=dict)
    upto: dict[str, int] = field(default_factory=dict)
    backup: TupleBackup = field(default_factory=TupleBackup)
    #: Results that the sink has not taken, and what the last one of each mapper went up to.
    results: list[Result] = field(default_factory=list)
    reported: dict[str, int] = field(default_factory=dict)
    #: The owner's: what the last checkpoint contained, who has it, and the one that is being made.
    base: Coverage = field(default_factory=dict)
    based: set[str] = field(default_factory=set)
    cut: RunningCut | None = None
    #: True if a checkpoint is wanted though nothing has changed.
    wants_cut: bool = False
    cut_s: float = 0.0

    def missing(self, mappers: tuple[str, ...]) -> list[str]:
        """Return the mappers of which it is not known that state and tuples make up everything."""
        return [
            mapper
            for mapper in mappers
            if mapper not in self.begins or self.begins[mapper] > self.coverage.get(mapper, 0)
        ]

    def complete(self, mappers: tuple[str, ...]) -> bool:
        """Return whether this node could own the interval: it has the state, and all tuples since."""
        return self.has_state and not self.missing(mappers)

    def receive(self, mapper: str, after: int, number: int) -> bool:
        """Note that the batches above one number, up to another, are here. Return False if they were before."""
        upto = self.upto.get(mapper)
        if upto is not None and number <= upto:
            return False
        if upto is None or after > upto:
            self.begins[mapper] = after
        self.upto[mapper] = number
        return True

    def give_up_cut(self) -> None:
        if self.cut is not None:
            self.table.undo_cut()
            self.cut = None

    def split(self, at: int) -> tuple[Fragment, Fragment]:
        """Return the parts below a place and from it on."""
        self.give_up_cut()
        tables = self.table.split(at)
        backups = self.backup.split(at, self.interval)
        parts = Interval(self.interval.low, at), Interval(at, self.interval.high)
        made = [
            Fragment(
                part,
                table,
                self.has_state,
                fresh=self.primary,
                primary=self.primary,
                waits_for=set(self.waits_for),
                coverage=dict(self.coverage),
                stamp_us=self.stamp_us,
                begins=dict(self.begins),
                upto=dict(self.upto),
                backup=backup,
                results=[each for each in self.results if each.interval.overlaps(part)],
                reported=dict(self.reported),
                base=self.base,
                based=set(self.based),
                wants_cut=self.primary,
                cut_s=self.cut_s,
            )
            for part, table, backup in zip(parts, tables, backups, strict=True)
        ]
        return made[0], made[1]

    @property
    def wide_results(self) -> bool:
        """True while the sink has not taken results of an interval that this one was cut out of."""
        return any(not self.interval.contains(each.interval) for each in self.results)
