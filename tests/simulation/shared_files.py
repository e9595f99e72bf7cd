"""Files that some clients replace while others open them: which contents a reader may get at which time.

Each name has one writer. New content may be visible from the start of its request. Old content may be visible
until the change that replaces it is acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from random import Random

from simulation.client_requests import Opened
from simulation.client_steps import (
    append,
    change,
    delete,
    flusher,
    list_names,
    open_file,
    read_opened,
    small_writes,
    write,
    write_small,
)
from simulation.name_changes import Change
from simulation.simulated_cluster import SimulatedCluster
from simulation.terms import CHUNK_BYTES

from peacefs.coordinator.limits import freed_chunks_kept_s
from peacefs.protocol.errors import FileNotFound, PeacefsError
from peacefs.protocol.limits import startup_hold_s
from peacefs.runtime import effects as fx

SHARED = "/shared"
BESIDE = "/beside"
_NAMES = 3
_SIZES = (1, 700, 64 * 1024, CHUNK_BYTES, 2 * CHUNK_BYTES + 5)
_SMALL_SIZES = (1, 700, 64 * 1024)
_WAYS = (
    "write",
    "write small",
    "write small",
    "flush",
    "append",
    "truncate",
    "replace",
    "copy",
    "exchange",
    "new",
)
#: Maximum time until a failed request takes effect.
_DOUBT_S = startup_hold_s + 10.0
#: Maximum time between a reader's open and its reads; replaced chunks are kept for longer than that.
_OPEN_S_MAX = freed_chunks_kept_s - 3.0


@dataclass
class _Content:
    """A content that a path may have had; None means absent."""

    data: bytes | None
    begun_s: float
    ended_s: float = inf


@dataclass
class Histories:
    """All contents that each path may have had, with times."""

    cluster: SimulatedCluster
    contents: dict[str, list[_Content]] = field(default_factory=dict)

    def of(self, path: str) -> list[_Content]:
        return self.contents.setdefault(path, [_Content(None, -inf)])

    def begin(self, path: str, data: bytes | None) -> _Content:
        content = _Content(data, self.cluster.world.now_s)
        self.of(path).append(content)
        return content

    def acknowledged(self, path: str, content: _Content) -> None:
        for other in self.of(path):
            if other is not content:
                other.ended_s = min(other.ended_s, self.cluster.world.now_s)

    def may_be(self, path: str, data: bytes | None, from_s: float, to_s: float) -> bool:
        """Return whether the path may have had this content at any time within the interval."""
        return any(each.data == data and each.begun_s <= to_s and each.ended_s >= from_s for each in self.of(path))

    def told(self, path: str) -> str:
        return ", ".join(
            f"{'nothing' if each.data is None else len(each.data)} from {each.begun_s:.3f} to {each.ended_s:.3f}"
            for each in self.of(path)[-5:]
        )


class SharingWriter:
    """Replaces its files over and over, in every possible way."""

    def __init__(self, name: str, histories: Histories, random: Random) -> None:
        self._name = name
        self._histories = histories
        self._random = random
        self._small = small_writes(name)
        self._paths = [f"{SHARED}/{name}-{number}" for number in range(_NAMES)]
        self._known: dict[str, bytes | None] = dict.fromkeys(self._paths)
        self._asked = 0
        self.acknowledged = 0
        self.failed = 0

    def work(self, operations: int) -> fx.Steps[None]:
        for _ in range(operations):
            path = self._random.choice(self._paths)
            way = "write" if self._known[path] is None else self._random.choice(_WAYS)
            try:
                yield from self._do(way, path)
                self.acknowledged += 1
            except PeacefsError:
                self.failed += 1
                # Their states are unknown: write all of them anew.
                self._known = dict.fromkeys(self._paths)
                yield from fx.sleep(_DOUBT_S)
            yield from fx.sleep(self._random.choice((0.0, 0.0, 0.05, 1.0)))

    def _do(self, way: str, path: str) -> fx.Steps[None]:
        data = self._random.randbytes(self._random.choice(_SMALL_SIZES if way == "write small" else _SIZES))
        before = self._known[path] or b""
        match way:
            case "write":
                yield from self._publish(path, data, write(path, data, self._request()))
            case "write small":
                yield from self._publish(path, data, write_small(self._small, path, data))
            case "flush":
                yield from self._flush(path, data)
            case "append":
                data = data[: 64 * 1024]
                yield from self._publish(path, before + data, append(path, data, self._request()))
            case "truncate":
                cut = self._random.choice((0, len(before) // 2, len(before)))
                yield from self._publish(path, before[:cut], self._change("truncate", path, number=cut))
            case "replace":
                beside = f"{BESIDE}/{self._name}"
                yield from write(beside, data, self._request())
                yield from self._publish(path, data, self._change("replace", beside, path))
            case "copy":
                other = self._random.choice(self._paths)
                if (copied := self._known[other]) is not None:
                    beside = f"{BESIDE}/{self._request()}"
                    yield from self._change("copy", other, beside)
                    yield from self._publish(path, copied, self._change("replace", beside, path))
            case "exchange":
                yield from self._exchange(path, self._random.choice(self._paths))
            case "new":
                new = f"{SHARED}/{self._request()}"
                yield from self._publish(new, data, write_small(self._small, new, data))
                yield from fx.sleep(self._random.choice((0.0, 0.05, 2.0)))
                yield from self._publish(new, None, delete(new))

    def _publish(self, path: str, data: bytes | None, steps: fx.Steps[None]) -> fx.Steps[None]:
        content = self._histories.begin(path, data)
        yield from steps
        self._histories.acknowledged(path, content)
        if path in self._known:
            self._known[path] = data

    def _flush(self, path: str, data: bytes) -> fx.Steps[None]:
        """Flush a part of a file; it is visible before the rest is written."""
        half = len(data) // 2
        writing = yield from flusher(path, self._request(), f"{self._name} {self._asked}")
        yield from self._publish(path, data[:half], writing.flush(data[:half]))
        yield from self._publish(path, data, writing.complete(data[half:]))

    def _exchange(self, one: str, other: str) -> fx.Steps[None]:
        first, second = self._known[one], self._known[other]
        if one == other or first is None or second is None:
            return
        contents = self._histories.begin(one, second), self._histories.begin(other, first)
        yield from self._change("exchange", one, other)
        for path, content in zip((one, other), contents, strict=True):
            self._histories.acknowledged(path, content)
            self._known[path] = content.data

    def _change(self, what: str, path: str, other: str = "", number: int = 0) -> fx.Steps[None]:
        return change(Change(what, path, "simulated", self._request(), other, number))

    def _request(self) -> str:
        self._asked += 1
        return f"{self._name}-{self._asked}"


class SharingReader:
    """Opens files while they are replaced, and lists names and reads the listed files at once.

    An open must return one version that existed while the file was opened. A listed file must be readable as long
    as one of its replicas is on a live datanode.
    """

    def __init__(self, cluster: SimulatedCluster, histories: Histories, random: Random, *, waits: float) -> None:
        """Create a reader; `waits` is the probability of a pause between open and read."""
        self._cluster = cluster
        self._waits = waits
        self._histories = histories
        self._random = random
        self.reads = 0
        self.not_there = 0
        self.failed = 0

    def work(self, is_over: Callable[[], bool]) -> fx.Steps[None]:
        while not is_over():
            try:
                listed = yield from list_names(SHARED)
            except PeacefsError:
                self.failed += 1
                yield from fx.sleep(1.0)
                continue
            for name in listed.files:
                yield from self._read(f"{SHARED}/{name}")
            yield from fx.sleep(self._random.choice((0.0, 0.05, 0.3)))

    def _read(self, path: str) -> fx.Steps[None]:
        world, coordinator = self._cluster.world, self._cluster.coordinator.node
        from_s, generations = world.now_s, self._generations()
        opened: Opened | None = None
        try:
            opened = yield from open_file(path)
            to_s = world.now_s
            if self._random.random() < self._waits:
                yield from fx.sleep(self._random.uniform(0.0, _OPEN_S_MAX))
            content = yield from read_opened(opened, ask_again=self._random.random() < 0.5)
        except PeacefsError as fault:
            if generations.get(coordinator.name) != coordinator.generation or not coordinator.up:
                # The coordinator was down, or has forgotten that it kept replicas for this reader.
                self.failed += 1
            elif opened is None and isinstance(fault, FileNotFound):
                self._check_not_there(path, from_s)
                self.not_there += 1
            else:
                self._check_lost(path, opened, generations, fault)
                self.failed += 1
        else:
            assert self._histories.may_be(path, content, from_s, to_s), (
                f"{path}: {len(content)} bytes were read of what was opened from {from_s:.3f} to {to_s:.3f}; "
                f"there was {self._histories.told(path)}"
            )
            self.reads += 1

    def _generations(self) -> dict[str, int]:
        return {name: node.generation for name, node in self._cluster.world.nodes.items() if node.up}

    def _check_not_there(self, path: str, from_s: float) -> None:
        assert self._histories.may_be(path, None, from_s, self._cluster.world.now_s), f"{path} was there all along"

    def _check_lost(
        self, path: str, opened: Opened | None, generations: dict[str, int], fault: PeacefsError
    ) -> None:
        """Check that the failed read is explained by a missing replica, if the coordinator was up."""
        still_up = self._generations().items() & generations.items()
        there = [each for each in self._cluster.datanodes if (each.node.name, each.node.generation) in still_up]
        chunks = [] if opened is None else [chunk.chunk for chunk in opened.layout.chunks]
        lost = [chunk for chunk in chunks if not any(each.store.find(chunk) for each in there)]
        assert lost, f"{path} cannot be read: {fault.code}: {fault.message}"
