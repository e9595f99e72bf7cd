"""HDFS's default placement: random and rack-aware.

The first replica goes to the writer's host, the second to another rack, the third to the rack of the second, the
others anywhere. No rack gets much more than its share. Used for chunks that no other policy places, and as the
baseline of comparisons.

If no candidate satisfies all rules, rules are dropped in this order: the limit on a node's load, the preferred
host or rack, the maximum per rack. Distinct nodes, `exclude` and disk space are always required.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from random import Random
from typing import NamedTuple, Protocol

#: A node with more than this multiple of the average number of streams is chosen only if there is no other
#: (HDFS: dfs.namenode.redundancy.considerLoad.factor).
LOAD_FACTOR = 2.0

_BLIND_DRAWS = 8


class Candidate(Protocol):
    """A datanode that may receive a replica. `streams` is its current number of transfers.

    Space and load may change after the candidate was added to an index; they are read when it is drawn.
    """

    @property
    def node(self) -> str: ...

    @property
    def host(self) -> str: ...

    @property
    def rack(self) -> str: ...

    @property
    def available_bytes(self) -> int: ...

    @property
    def streams(self) -> int: ...


class StillCandidate(NamedTuple):
    """A candidate with constant space and load."""

    node: str
    host: str
    rack: str
    available_bytes: int
    streams: int


class PlacementRequest(NamedTuple):
    """A request to place a chunk: `replication` replicas in total, including those in `already` (for a repair).

    No replica is placed on nodes in `exclude` or with less space than `chunk_bytes`. `writer_host` is None for a
    writer that is not on the host of a datanode.
    """

    writer_host: str | None
    replication: int
    exclude: frozenset[str]
    already: tuple[str, ...] = ()
    chunk_bytes: int = 1


class CandidateIndex:
    """Candidates by node, host and rack, built once and used for many chunks.

    `streams` returns the total number of streams, if the caller knows it without adding up all candidates.
    """

    def __init__(self, candidates: Iterable[Candidate], streams: Callable[[], int] | None = None) -> None:
        self.by_node: dict[str, Candidate] = {}
        self.by_host: dict[str, list[Candidate]] = {}
        self.by_rack: dict[str, list[Candidate]] = {}
        for candidate in candidates:
            assert candidate.node not in self.by_node, f"{candidate.node} is a candidate twice"
            self.by_node[candidate.node] = candidate
            self.by_host.setdefault(candidate.host, []).append(candidate)
            self.by_rack.setdefault(candidate.rack, []).append(candidate)
        self.all = list(self.by_node.values())
        self._streams = streams or self._counted_streams

    def streams_max(self) -> float:
        """Return the number of streams above which a node counts as busy. Needs at least one candidate."""
        return LOAD_FACTOR * self._streams() / len(self.all)

    def _counted_streams(self) -> int:
        return sum(candidate.streams for candidate in self.all)


def place_randomly(request: PlacementRequest, nodes: Sequence[Candidate], rng: Random) -> list[str]:
    """Return nodes for the missing replicas, in pipeline order, nodes of one rack together.

    There are fewer nodes than requested only if there are not enough candidates.
    """
    return choose_randomly(request, CandidateIndex(nodes), rng)


def choose_randomly(request: PlacementRequest, index: CandidateIndex, rng: Random) -> list[str]:
    """Place a chunk like `place_randomly`, with a prepared index."""
    choice = _Choice(request, index, rng)
    missing = request.replication - len(set(request.already))
    while len(choice.chosen) < missing and (candidate := choice.next()) is not None:
        choice.take(candidate)
    return [candidate.node for candidate in _rack_by_rack(choice.chosen)]


def replicas_per_rack_max(replicas: int, racks: int) -> int:
    """Return HDFS's maximum per rack: more than an even share, but never all replicas if there are two racks."""
    if racks <= 1 or replicas <= 1:
        return replicas
    return min((replicas - 1) // racks + 2, replicas - 1)


class _Scope(NamedTuple):
    """A part of the cluster to draw from: the candidates in `pool` except those in rack `not_in`."""

    pool: list[Candidate]
    not_in: str | None = None


class _Choice:
    """The state of placing one chunk."""

    def __init__(self, request: PlacementRequest, index: CandidateIndex, rng: Random) -> None:
        self._request = request
        self._index = index
        self._rng = rng
        self._everywhere = _Scope(index.all)
        self._taken = {*request.exclude, *request.already}
        self._holders = [index.by_node[node] for node in request.already if node in index.by_node]
        self._in_rack: dict[str, int] = {}
        for holder in self._holders:
            self._count(holder)
        self._share = replicas_per_rack_max(request.replication, len(index.by_rack))
        self._streams_max = index.streams_max() if index.all else 0.0
        self.chosen: list[Candidate] = []

    def take(self, candidate: Candidate) -> None:
        self.chosen.append(candidate)
        self._taken.add(candidate.node)
        self._holders.append(candidate)
        self._count(candidate)

    def _count(self, holder: Candidate) -> None:
        self._in_rack[holder.rack] = self._in_rack.get(holder.rack, 0) + 1

    def next(self) -> Candidate | None:
        if not self._index.all:
            return None
        scopes = [*self._preferred(), self._everywhere]
        for share in (self._share, self._request.replication):
            for scope in scopes:
                for streams_max in (self._streams_max, inf):
                    if (found := self._draw(scope, share, streams_max)) is not None:
                        return found
        return None

    def _preferred(self) -> list[_Scope]:
        """Return where the next replica should go, best first."""
        by_rack = self._index.by_rack
        if not self._holders:
            at_writer = self._index.by_host.get(self._request.writer_host or "", [])
            return [_Scope(at_writer), _Scope(by_rack[at_writer[0].rack])] if at_writer else []
        if len(self._in_rack) == 1 and len(by_rack) > 1:
            return [_Scope(self._index.all, not_in=self._holders[0].rack)]
        return [_Scope(by_rack[self._holders[1].rack])] if len(self._holders) == 2 else []

    def _draw(self, scope: _Scope, share: int, streams_max: float) -> Candidate | None:
        """Return a random suitable candidate of the scope, all with equal probability."""
        # Most candidates of a large pool are suitable, so a few blind draws usually avoid a full scan.
        for _ in range(_BLIND_DRAWS):
            candidate = scope.pool[int(self._rng.random() * len(scope.pool))]
            if self._is_fit(candidate, scope, share, streams_max):
                return candidate
        remaining = [each for each in scope.pool if self._is_fit(each, scope, share, streams_max)]
        return self._rng.choice(remaining) if remaining else None

    def _is_fit(self, candidate: Candidate, scope: _Scope, share: int, streams_max: float) -> bool:
        return (
            candidate.node not in self._taken
            and candidate.rack != scope.not_in
            and candidate.available_bytes >= self._request.chunk_bytes
            and candidate.streams <= streams_max
            and self._in_rack.get(candidate.rack, 0) < share
        )


def _rack_by_rack(chosen: list[Candidate]) -> list[Candidate]:
    """Group candidates by rack, with racks and nodes in the order in which they were chosen."""
    first_seen: dict[str, int] = {}
    for candidate in chosen:
        first_seen.setdefault(candidate.rack, len(first_seen))
    return sorted(chosen, key=lambda candidate: first_seen[candidate.rack])
