"""Every way to read a file gives the content of a model in memory, after any changes to the file."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from random import Random

import pytest
from oracles.file_tree import FileTree
from support.long_runs import IS_LONG, often
from support.ways_to_read import HadoopWay, Way, ways_to_read

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster

pytestmark = pytest.mark.cluster

#: Checksum blocks are 64 KiB; replicas of up to 256 KiB share files.
BLOCK, SMALL_MAX = 64 * 1024, 256 * 1024
#: Near those limits, and random.
LENGTHS = (0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 100_000, SMALL_MAX - 1, SMALL_MAX, SMALL_MAX + 1, 300_000, 700_001)


@pytest.fixture(scope="module")
def ways(shared_cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Way]]:
    """Yield all ways; Hadoop's client only with PEACEFS_LONG, because it starts a JVM."""
    with ExitStack() as stack:
        ways = stack.enter_context(ways_to_read(shared_cluster.http_address))
        if IS_LONG:
            from support.stock_hadoop import running_gateway, running_hadoop

            gateway = stack.enter_context(running_gateway(tmp_path_factory.mktemp("java")))
            hadoop = stack.enter_context(running_hadoop(gateway, shared_cluster.webhdfs_uri))
            ways["Hadoop's client"] = HadoopWay(hadoop)
        yield ways


class Directory:
    """A directory of the cluster and its model, changed together."""

    def __init__(
        self, path: str, files: PeaceFileSystem, superuser: PeaceFileSystem, ways: dict[str, Way], rng: Random
    ) -> None:
        self.path = path
        self.model = FileTree()
        self._files = files
        self._ways = ways
        self.rng = rng
        #: The block size of each file.
        self.blocks: dict[str, int] = {}
        self._numbers = iter(range(1 << 30))
        self.done: list[str] = []
        files.mkdirs(path)
        superuser.snapshots.allow(path)

    def create(self, name: str, length: int, block_bytes: int = 1 << 26) -> None:
        self._note(f"create {name} {length} in chunks of {block_bytes}")
        data = self.rng.randbytes(length)
        self.model.create(name, data)
        self.blocks[name] = block_bytes
        self._files.write(f"{self.path}/{name}", data, overwrite=True, block_bytes=block_bytes)

    def append(self, name: str, *lengths: int) -> None:
        """Append parts to a file; flush after each part except the last."""
        self._note(f"append {name} {lengths}")
        with self._files.open_for_appending(f"{self.path}/{name}") as sink:
            for length in lengths:
                data = self.rng.randbytes(length)
                self.model.append(name, data)
                sink.write(data)
                if length is not lengths[-1]:
                    sink.hflush()

    def truncate(self, name: str, length: int) -> None:
        self._note(f"truncate {name} {length}")
        self.model.truncate(name, length)
        self._files.truncate(f"{self.path}/{name}", length)

    def concat(self, target: str, *sources: str) -> None:
        self._note(f"concat {target} {sources}")
        self.model.concat(target, list(sources))
        self._files.concat(f"{self.path}/{target}", [f"{self.path}/{source}" for source in sources])

    def rename(self, source: str, target: str) -> None:
        self._note(f"rename {source} {target}")
        self.model.rename(source, target)
        self.blocks[target] = self.blocks[source]
        self._files.rename(f"{self.path}/{source}", f"{self.path}/{target}", overwrite=True)

    def copy(self, source: str, target: str) -> None:
        self._note(f"copy {source} {target}")
        self.model.copy(source, target)
        self.blocks[target] = self.blocks[source]
        self._files.copy(f"{self.path}/{source}", f"{self.path}/{target}")

    def snapshot(self) -> None:
        name = f"s{next(self._numbers)}"
        self._note(f"snapshot {name}")
        self.model.snapshot(name)
        self._files.snapshots.create(self.path, name)

    def _note(self, what: str) -> None:
        self.done.append(what)

    def check(self, *names: str) -> None:
        """Read the whole file and three parts in every way; read a snapshot and a copy in some ways."""
        for name in names:
            expected = self.model.files[name]
            self._check_path(name, expected, self._ways)
            passing = f"pass{next(self._numbers)}"
            self._files.snapshots.create(self.path, passing)
            self._check_path(f".snapshot/{passing}/{name}", expected, self._some_ways())
            self._files.snapshots.delete(self.path, passing)
            self._files.copy(f"{self.path}/{name}", f"{self.path}/{passing}")
            self._check_path(passing, expected, self._some_ways())
            self._files.delete(f"{self.path}/{passing}")

    def check_everything(self) -> None:
        for name, expected in self.model.everything().items():
            self._check_path(name, expected, self._some_ways())
        listed = {entry.path.rpartition("/")[2]: entry.length for entry in self._files.list(self.path)}
        assert listed == {name: len(data) for name, data in self.model.files.items()}

    def _some_ways(self) -> list[str]:
        return self.rng.sample(list(self._ways), often(2, len(self._ways)))

    def _check_path(self, name: str, expected: bytes, by: Iterable[str]) -> None:
        path = f"{self.path}/{name}"
        parts = [self._part(len(expected)) for _ in range(3)]
        for way_name in by:
            way, what = self._ways[way_name], f"{name} by {way_name} after {self.done}"
            try:
                assert _same(way.whole(path), expected), what
                for offset, length in parts:
                    assert _same(way.part(path, offset, length), expected[offset : offset + length]), (
                        f"{length} bytes at {offset} of {what}"
                    )
            except Exception as error:
                error.add_note(what)
                raise

    def _part(self, length: int) -> tuple[int, int]:
        """Return an offset, and the number of bytes to read there."""
        last = max(length - 1, 0)
        edges = [edge for edge in (0, 1, BLOCK - 1, BLOCK, SMALL_MAX, last) if edge <= last]
        offset = self.rng.choice([*edges, self.rng.randint(0, last)])
        rest = max(length - offset, 1)
        return offset, self.rng.choice([1, rest, rest + 5, BLOCK, self.rng.randint(1, rest)])


def _same(read: bytes, expected: bytes) -> bool:
    """Compare without an explanation, for which pytest would take minutes."""
    return read == expected


@pytest.fixture
def rng() -> Random:
    seed = int(os.environ.get("PEACEFS_SEED", random.randrange(1 << 32)))
    print(f"PEACEFS_SEED={seed}")
    return Random(seed)


@pytest.fixture
def directory(
    home: str, files: PeaceFileSystem, superuser: PeaceFileSystem, ways: dict[str, Way], rng: Random
) -> Directory:
    return Directory(f"{home}/d", files, superuser, ways, rng)


CUTS = [
    # The length of a file, and the length to cut to: within a checksum block, at its edges, across 256 KiB.
    (700_001, 5 * BLOCK + 1),
    (200_000, 70_000),
    (700_001, 100_000),
    (700_001, 700_000),
    (700_001, SMALL_MAX + 1),
    (700_001, 5 * BLOCK),
    (700_001, 6 * BLOCK - 1),
    (SMALL_MAX + 1, SMALL_MAX),
]


@pytest.mark.parametrize(("length", "cut"), CUTS[: often(3, len(CUTS))])
def test_a_truncated_file_is_read_in_every_way_whatever_is_done_with_it(
    directory: Directory, length: int, cut: int
) -> None:
    d = directory
    d.create("f", length)
    d.snapshot()
    d.truncate("f", cut)
    d.check("f")
    d.copy("f", "copied")
    d.append("f", 300_000, 10)
    d.check("f")
    d.create("other", length)
    d.truncate("other", cut)
    d.concat("copied", "f", "other")
    d.check("copied")
    d.snapshot()
    d.truncate("copied", cut + 150_000)
    d.rename("copied", "f")
    d.check("f")
    d.check_everything()


@pytest.mark.parametrize("_round", range(often(1, 5)))
def test_files_that_are_changed_at_random_are_read_in_every_way(
    directory: Directory, rng: Random, _round: int
) -> None:
    d, names = directory, ("a", "b", "c")
    for _ in range(often(10, 40)):
        there = sorted(d.model.files)
        changes = [d.create] if len(there) < 2 else [d.create, d.append, d.truncate, d.truncate, d.concat, d.copy]
        changes += [d.rename, d.snapshot] if there else []
        name = rng.choice(there or names)
        match rng.choice(changes):
            case d.create:
                name = rng.choice(names)
                d.create(name, rng.choice(LENGTHS), rng.choice([1 << 26, 4 * BLOCK, 5 * BLOCK]))
            case d.append:
                d.append(name, *(rng.choice(LENGTHS) for _ in range(rng.randint(1, 3))))
            case d.truncate:
                length = len(d.model.files[name])
                at = rng.choice([rng.randint(0, length), rng.choice(LENGTHS), length - 1])
                d.truncate(name, max(0, min(at, length)))
            case d.concat:
                # HDFS refuses empty sources, and those of larger blocks.
                fitting = [each for each in there if d.model.files[each] and d.blocks[each] <= d.blocks[name]]
                sources = [each for each in fitting if each != name]
                if not sources:
                    continue
                d.concat(name, *rng.sample(sources, rng.randint(1, len(sources))))
            case d.copy:
                target = rng.choice(names)
                if target in there:
                    continue
                d.copy(name, target)
            case d.rename:
                target = rng.choice([each for each in names if each != name])
                d.rename(name, target)
                name = target
            case d.snapshot:
                if len(d.model.snapshots) > 5:
                    continue
                d.snapshot()
        d.check(name)
    d.check_everything()
