"""A fragment: the state of an interval, its coverage, and the tuples since, on one node.

The owner and its neighbours have the same kind of fragment. The owner processes the tuples that the others back
up. So a node that takes over already has everything, and nothing needs to be sent (SMR V-B, VII).
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
    """A checkpoint that is being made of an inactive fragment, with its coverage and its base."""

    number: int
    base: Coverage
    coverage: Coverage
    stamp_us: int
    results: tuple[Result, ...]
    #: Holders that receive the whole state, because they lack the base of the changes.
    full_for: frozenset[str]


@dataclass
class Fragment:
    interval: Interval
    table: KeyedTable
    #: True if there is a state, as of the coverage, however old.
    has_state: bool
    #: False if the fragment was split off another one, until a checkpoint of exactly this fragment arrives.
    fresh: bool = True
    #: True on the owner.
    primary: bool = False
    #: The nodes whose copy the owner waits for, because it lacks something.
    waits_for: set[str] = field(default_factory=set)
    coverage: dict[str, int] = field(default_factory=dict)
    stamp_us: int = 0
    #: For each mapper: all batches above `begins` and up to `upto` have arrived here.
    begins: dict[str, int] = field(default_factory=dict)
    upto: dict[str, int] = field(default_factory=dict)
    backup: TupleBackup = field(default_factory=TupleBackup)
    #: Results that the sink has not taken, and for each mapper the number that the last result went up to.
    results: list[Result] = field(default_factory=list)
    reported: dict[str, int] = field(default_factory=dict)
    #: On the owner: what the last checkpoint contained, who has it, and the checkpoint that is being made.
    base: Coverage = field(default_factory=dict)
    based: set[str] = field(default_factory=set)
    cut: RunningCut | None = None
    #: True if a checkpoint is wanted although nothing has changed.
    wants_cut: bool = False
    cut_s: float = 0.0

    def missing(self, mappers: tuple[str, ...]) -> list[str]:
        """Return the mappers for which state and tuples may not add up to everything."""
        return [
            mapper
            for mapper in mappers
            if mapper not in self.begins or self.begins[mapper] > self.coverage.get(mapper, 0)
        ]

    def complete(self, mappers: tuple[str, ...]) -> bool:
        """Return True if this node could own the interval: it has the state, and all tuples since."""
        return self.has_state and not self.missing(mappers)

    def receive(self, mapper: str, after: int, number: int) -> bool:
        """Note that the batches above `after` and up to `number` are here. Return False if they already were."""
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
        """Return the parts below a place, and from that place on."""
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
        """True while the sink has not taken results of the larger interval that this one was split off."""
        return any(not self.interval.contains(each.interval) for each in self.results)
