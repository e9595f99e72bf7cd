"""Periodic loads: recurring write sets, each with a class, and bulk writers that never end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random

from peacefs.peace.policies.ledger import WriteSet
from peacefs.protocol.values.write_classes import WriteClass
from peacefs.topology.model import Topology
from peacefs.topology.rate_curve import MB

from .scenarios import CHUNK_BYTES, REPLICAS
from .simulate import Arrival

#: Maximum rate of a recurrence, so that an occurrence alone in the cluster is done long before the next one.
_BYTES_S_MAX = 15 * MB

_SMALLEST_BYTES = 2 * MB

#: A bulk writer submits one file after the other, each with this many chunks.
_BULK_CHUNKS = 8


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A writer that writes about `size` bytes every `period_s`, for the first time at `phase_s`.

    If `is_ours`, its phase may be chosen. `jitter` is the maximum delay of an occurrence, as a share of the
    period; each occurrence is late at random. It writes from `from_s` until `until_s`.
    """

    name: str
    writer: str
    period_s: float
    size: int
    phase_s: float = 0.0
    write_class: WriteClass = WriteClass.BLOCKING
    is_ours: bool = True
    jitter: float = 0.0
    from_s: float = 0.0
    until_s: float = float("inf")

    @property
    def bytes_s(self) -> float:
        return self.size / self.period_s

    def times(self, until_s: float) -> Iterable[float]:
        """Yield the times of the occurrences without jitter."""
        at_s = self.phase_s % self.period_s
        while at_s < min(until_s, self.until_s):
            if at_s >= self.from_s:
                yield at_s
            at_s += self.period_s


def recurrences(
    topology: Topology, rng: Random, count: int, periods_s: Sequence[float], bytes_s: float
) -> list[Recurrence]:
    """Return recurrences that write `bytes_s` bytes per second together.

    Writers and periods are random, and sizes have a heavy tail. The largest sizes are limited, so that each
    occurrence alone in the cluster is done before the next one.
    """
    servers = sorted(topology.servers)
    made = [
        Recurrence(f"r{number:03}", rng.choice(servers), rng.choice(periods_s), 0, jitter=0.02)
        for number in range(count)
    ]
    weights = [each.period_s * rng.lognormvariate(0.0, 1.5) for each in made]
    largest = [round(each.period_s * _BYTES_S_MAX) for each in made]
    low, high = 0.0, 1e12
    sizes = [0] * count
    for _ in range(60):
        factor = (low + high) / 2
        sizes = [
            min(most, max(_SMALLEST_BYTES, round(factor * weight)))
            for most, weight in zip(largest, weights, strict=True)
        ]
        if sum(size / each.period_s for size, each in zip(sizes, made, strict=True)) < bytes_s:
            low = factor
        else:
            high = factor
    return [replace(each, size=size) for each, size in zip(made, sizes, strict=True)]


def chunks_of(size: int) -> tuple[int, ...]:
    """Return the sizes of the chunks of a set."""
    whole, rest = divmod(size, CHUNK_BYTES)
    return (CHUNK_BYTES,) * whole + ((rest,) if rest else ())


def occurrences(recurrence: Recurrence, until_s: float, rng: Random) -> list[Arrival]:
    """Return all write sets of a recurrence. Sizes vary by 10 %."""
    made = []
    for number, at_s in enumerate(recurrence.times(until_s)):
        late_s = rng.random() * recurrence.jitter * recurrence.period_s
        size = max(_SMALLEST_BYTES, round(recurrence.size * max(0.5, rng.gauss(1.0, 0.1))))
        write_set = WriteSet(
            f"{recurrence.name}@{number}",
            recurrence.writer,
            REPLICAS,
            chunks_of(size),
            write_class=recurrence.write_class,
            due_s=at_s + late_s + recurrence.period_s,
        )
        made.append(Arrival(at_s + late_s, write_set))
    return made


class BulkWriters:
    """Writers that submit one file after the other without end. `next` submits the file after a written one."""

    def __init__(self, topology: Topology, rng: Random, count: int) -> None:
        servers = sorted(topology.servers)
        self._writers = [rng.choice(servers) for _ in range(count)]

    def first(self) -> list[Arrival]:
        return [self._file(writer, 0, 0.0) for writer in range(len(self._writers))]

    def next(self, name: str, now_s: float) -> list[Arrival]:
        if not name.startswith("bulk-"):
            return []
        writer, _, number = name.removeprefix("bulk-").partition("@")
        return [self._file(int(writer), int(number) + 1, now_s)]

    def _file(self, writer: int, number: int, at_s: float) -> Arrival:
        write_set = WriteSet(
            f"bulk-{writer}@{number}",
            self._writers[writer],
            REPLICAS,
            (CHUNK_BYTES,) * _BULK_CHUNKS,
            write_class=WriteClass.BULK,
        )
        return Arrival(at_s, write_set)
