"""Large trees are counted in turns, for quotas, during changes: usage and outcomes equal a model's.

The model counts by walking, at each commit. Operations of several clients take turns by a seed. Some runs crash
during counts, and in some the disk is full at times.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from oracles.quota_tree import DONE, Errors, Path, QuotaTree
from support.immediate_commit import CommitsAtOnce, durable_at_once
from support.long_runs import often
from support.new_core import new_core
from support.no_links import NoLinks

from peacefs.coordinator.metadata.log.segments import LogFull
from peacefs.coordinator.metadata.model import ROOT, Inode, NamespaceUsage, RenameMode
from peacefs.coordinator.metadata.row_store import Rows
from peacefs.coordinator.metadata.sqlite.check import check_tables
from peacefs.coordinator.metadata.sqlite.store import MetadataInMemory, store_in_memory
from peacefs.coordinator.metadata.store import MetadataFull
from peacefs.coordinator.metadata.tables import PIN, QUOTA
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace import quotas
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.coordinator.namespace.permissions import Callers
from peacefs.coordinator.operations.context import OperationContext
from peacefs.coordinator.operations.durability.commits import Commits
from peacefs.coordinator.operations.files import Files
from peacefs.protocol.errors import PeacefsError, ServiceUnready
from peacefs.protocol.tokens import Signer

from .conftest import Space, forget_all_the_time

T = TypeVar("T")
_NAMES = "abc"
_REPEATED = "repeated"
_REPLICATION = 2
_CLIENTS = 4
_OPERATIONS = ("mkdirs", "create", "create", "resize", "delete", "rename", "rename", "limit", "limit")


def _shown(path: Path) -> str:
    return "/" + "/".join(path)


class _World:
    """A store with its operations, clients that use them in random turns, and the model."""

    def __init__(
        self, chance: random.Random, metadata: MetadataInMemory, tree: QuotaTree, *, has_full_disks: bool = False
    ) -> None:
        self.chance = chance
        self.metadata = metadata
        self.tree = tree
        self.metadata.begin_epoch()
        self.space = Space(metadata)
        self.has_crashed = False
        self.has_full_disks = has_full_disks
        self.pauses = 0
        context = OperationContext(
            metadata.reader(),
            CommitsAtOnce(metadata, self._before),
            new_core(),
            Signer(b"secret"),
            NoLinks(),
            durable_at_once(metadata),
            callers=Callers("root"),
            sleep=lambda seconds: self._pause(seconds),
        )
        self.files = Files(context)

    def _before(self) -> None:
        if self.has_crashed:
            raise ServiceUnready("the coordinator has crashed")

    async def _pause(self, _seconds: float) -> None:
        self.pauses += 1
        if self.has_full_disks and self.chance.random() < 0.1:
            self.metadata.log.fails = LogFull("the disk is full") if self.chance.random() < 0.3 else None
        for _ in range(self.chance.randint(1, 3)):
            await asyncio.sleep(0)

    async def work(self, operations: int) -> None:
        for _ in range(operations):
            await self._operate()
            self.check_usage()
            await self._pause(0)

    async def reclaim(self) -> None:
        """Do what the coordinator does in the background, repeatedly."""
        while True:
            with contextlib.suppress(ServiceUnready):
                await self.files.names.reclaim()
            await self._pause(0)

    def _path(self) -> Path:
        return tuple(self.chance.choice(_NAMES) for _ in range(self.chance.randint(1, 4)))

    def _existing(self, *, is_file: bool = False) -> Path | None:
        found = [path for path, size in self.tree.nodes.items() if path and (size is not None) >= is_file]
        return self.chance.choice(sorted(found)) if found else None

    async def _operate(self) -> None:
        names, chance, tree = self.files.names, self.chance, self.tree
        match chance.choice(_OPERATIONS):
            case "mkdirs":
                path = self._path()
                await self._both(lambda: names.mkdirs(_shown(path), "root", 0o755), lambda: tree.make(path, None))
            case "create":
                path, length = self._path(), chance.randint(1, 9)
                await self._both(
                    lambda: self._create(path, length), lambda: tree.make(path, length * _REPLICATION)
                )
            case "resize":
                found = self._existing(is_file=True)
                if found is not None:
                    await self._resize(found)
            case "delete":
                found = self._existing()
                if found is not None and chance.random() < 0.4:
                    await self._both(lambda: names.delete(_shown(found), True, "root"), lambda: tree.delete(found))
            case "rename":
                source, target = self._existing(), self._path()
                if chance.random() < 0.1:
                    source = self._path()
                elif chance.random() < 0.1 and tree.moves:
                    source, target = chance.choice(sorted(tree.moves))
                if source is not None:
                    await self._rename(source, target)
            case "limit":
                limited = self.chance.choice((self._existing() or (), self._existing() or (), ()))
                most, space = chance.choice((None, 5, 15, 100)), chance.choice((None, None, 20, 200))
                asked = [-1 if each is None else each for each in (most, space)]
                await self._both(
                    lambda: self.files.limiting.set_quota(_shown(limited), "root", asked[0], asked[1]),
                    lambda: tree.limit(limited, most, space),
                )

    async def _create(self, path: Path, length: int) -> None:
        self._before()
        try:
            self.space.create(_shown(path), length)
        except MetadataFull as full:
            raise ServiceUnready(str(full)) from full

    async def _resize(self, path: Path) -> None:
        """Change the replication, and so the bytes of all replicas."""
        replication = self.chance.randint(1, 4)
        length = self.space.status(_shown(path)).length
        await self._both(
            lambda: self.files.names.set_replication(_shown(path), "root", replication),
            lambda: self.tree.resize(path, length * replication),
        )

    async def _rename(self, source: Path, target: Path) -> None:
        def expected() -> Errors:
            errors = self.tree.rename(source, target)
            if source not in self.tree.nodes and (source, target) in self.tree.moves:
                # Another client was faster with the same move, so this rename may count as its repetition.
                return errors | {_REPEATED}
            return errors

        await self._both(
            lambda: self.files.names.rename(_shown(source), _shown(target), "root", RenameMode.STRICT), expected
        )

    async def _both(self, operation: Callable[[], Awaitable[object]], expected: Callable[[], Errors]) -> None:
        """Perform an operation. Nothing runs between its commit and the same change of the model."""
        raised = ""
        try:
            await operation()
        except PeacefsError as error:
            if isinstance(error, ServiceUnready):
                # It has crashed, or the disk is full, and nothing has changed.
                assert self.has_crashed or self.has_full_disks
                return
            raised = type(error).__name__
        errors = expected()
        assert raised in errors or (not raised and (errors == DONE or _REPEATED in errors)), (raised, errors)

    def check_usage(self) -> None:
        """Check that each directory's recorded usage equals what a walk through the model counts."""
        for path, limits in self.tree.limits.items():
            quota = namespace.quota(self.metadata.reader(), parse_path(_shown(path)))
            assert quota is not None, path
            assert (quota.names_max, quota.bytes_max) == limits, path
            assert quota.used == self.tree.usage(path), path

    def check_store(self) -> None:
        assert check_tables(self.metadata.imaged(), lambda *_: None).problems == []

    def check_nothing_is_left(self) -> None:
        """Check that no count is under way, and that none has left rows behind."""
        small = self.metadata.rows.small
        assert not small[PIN]
        kept = [row for row in small[QUOTA].values() if self.metadata.reader().is_in_tree(row[0])]
        assert len(kept) == len(self.tree.limits)


async def _play(world: _World, operations: int) -> None:
    """Let clients work, and perhaps crash meanwhile."""
    clients = [asyncio.ensure_future(world.work(operations)) for _ in range(_CLIENTS)]
    background = asyncio.ensure_future(world.reclaim())
    crash_at = world.chance.choice((None, world.chance.randint(1, operations * _CLIENTS)))
    while not all(client.done() for client in clients):
        await asyncio.sleep(0)
        if crash_at is not None and world.pauses >= crash_at:
            world.has_crashed = True
            for client in clients:
                client.cancel()
            break
    background.cancel()
    for task in (*clients, background):
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("seed", range(often(12, 1000)))
def test_usage_is_exact_while_trees_are_counted_and_changed(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    print("seed", seed)
    monkeypatch.setattr(quotas, "tree_names_counted_at_once_max", 2)
    monkeypatch.setattr(namespace, "tree_entries_per_turn", 2)
    chance = random.Random(seed)
    metadata, tree = store_in_memory(owner="root"), QuotaTree()
    for _ in range(3):
        world = _World(chance, metadata, tree, has_full_disks=chance.random() < 0.5)
        if chance.random() < 0.5:
            forget_all_the_time(metadata)
        world.check_nothing_is_left()
        asyncio.run(_play(world, 40))
        world.check_usage()
        metadata.log.fails = None
        if not world.has_crashed:
            asyncio.run(world.files.names.reclaim())
            world.check_nothing_is_left()
            world.check_store()
            world.space.reclaim()
            world.check_store()
        # A start, after a stop or a crash.
        metadata = MetadataInMemory(metadata.image, metadata.log)


def test_usage_of_the_root_is_counted_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "tree_names_counted_at_once_max", 2)
    monkeypatch.setattr(namespace, "tree_entries_per_turn", 1)
    world = _World(random.Random(1), store_in_memory(owner="root"), QuotaTree())
    for number in range(5):
        world.space.create(f"/d/{number}", 10)

    async def story() -> None:
        async def change() -> None:
            for number in range(5):
                world.space.create(f"/d/{number}-later", 1)
                world.space.delete(f"/d/{number}")
                await asyncio.sleep(0)

        await asyncio.gather(world.files.limiting.set_quota("/", "root", 100, None), change())

    asyncio.run(story())
    quota = namespace.quota(world.metadata.reader(), parse_path("/"))
    assert quota is not None and quota.used == NamespaceUsage(7, 10)


def test_change_that_waits_for_the_count_of_another_one_is_refused_in_the_end() -> None:
    metadata = store_in_memory(owner="root")
    metadata.begin_epoch()
    now_s = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds
        await asyncio.sleep(0)

    context = OperationContext(
        metadata.reader(),
        CommitsAtOnce(metadata),
        new_core(),
        Signer(b"secret"),
        NoLinks(),
        durable_at_once(metadata),
        monotonic=lambda: now_s,
        sleep=sleep,
    )
    trees = Files(context).names.trees
    hangs = asyncio.Event()

    def change(tx: Transaction) -> None:
        if tx.counted_usage(ROOT) is None:
            raise quotas.TreeIsLarge(ROOT)

    async def attempt() -> bool:
        await context.commit(change)
        return await hangs.wait()

    async def before_the_end_of_the_count() -> bool:
        raise quotas.TreeIsLarge(ROOT)

    async def story() -> None:
        first = asyncio.ensure_future(trees.commit(attempt))
        await asyncio.sleep(0)
        with pytest.raises(ServiceUnready, match="counted for another change"):
            await trees.commit(before_the_end_of_the_count)
        hangs.set()
        assert await first and await trees.commit(attempt)

    asyncio.run(story())
    assert 60 <= now_s < 61


_LARGE = 1500


def _operations(files: Files) -> dict[str, Callable[[], Awaitable[object]]]:
    """Operations on the tree /ann/d, in this order. Ann is an ordinary user."""
    names, limit = files.names, files.limiting.set_quota
    return {
        "content summary": lambda: names.content_summary("/ann/d", "ann"),
        "set a quota": lambda: limit("/ann/d", "root", 10_000, None),
        "remove the quota": lambda: limit("/ann/d", "root", -1, None),
        "rename into a quota": lambda: names.rename("/ann/d", "/limited/d", "ann", RenameMode.STRICT),
        "rename out of a quota": lambda: names.rename("/limited/d", "/ann/e", "ann", RenameMode.STRICT),
        "allow snapshots": lambda: files.snapshots.allow("/ann/e", "root"),
        "take a snapshot": lambda: files.snapshots.create("/ann/e", "ann", "s"),
        "change something": lambda: names.delete("/ann/e/0", True, "ann"),
        "compare": lambda: files.snapshots.diff("/ann/e", "ann", "s", ""),
        "copy into a quota": lambda: files.copying.copy("/ann/e", "/limited/copy", "ann"),
        "drop the snapshot": lambda: files.snapshots.delete("/ann/e", "ann", "s"),
        "delete below a quota": lambda: names.delete("/limited/copy", True, "ann"),
        "delete": lambda: names.delete("/ann/e", True, "ann"),
        "reclaim": lambda: names.reclaim(),
    }


@pytest.mark.evidence("loop-is-free")
@pytest.mark.parametrize("is_flat", [True, False])
def test_no_operation_on_a_large_tree_reads_much_of_it_in_one_turn(
    is_flat: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn reads at most a fifth of the tree, whatever the operation. Usage equals arithmetic."""
    world = _World(random.Random(1), store_in_memory(owner="root"), QuotaTree())
    space = world.space
    space.mkdirs("/ann", permission=0o755)
    space.mkdirs("/limited", permission=0o777)
    space.create_many(
        [f"/ann/d/{number}" if is_flat else f"/ann/d/{number % 50}/{number}" for number in range(_LARGE)]
    )
    space.set_quota("/limited", names=2 * _LARGE, space=1_000_000)
    everything = _LARGE + 1 + (0 if is_flat else 50)
    read, most = 0, 0
    inode, commit = Rows.inode, Commits.__call__

    def read_one(rows: Rows, number: int) -> Inode | None:
        nonlocal read, most
        read += 1
        most = max(most, read)
        return inode(rows, number)

    async def pause(_seconds: float) -> None:
        nonlocal read
        read = 0

    async def commit_in_its_own_turn(
        commits: Commits, change: Callable[[Transaction], object], **how: bool
    ) -> object:
        answer = await commit(commits, change, **how)
        await pause(0)
        return answer

    monkeypatch.setattr(world, "_pause", pause)
    monkeypatch.setattr(Rows, "inode", read_one)
    monkeypatch.setattr(Commits, "__call__", commit_in_its_own_turn)
    used = {}
    for name, operation in _operations(world.files).items():
        read = most = 0
        asyncio.run(_awaited(operation()))
        used[name] = most
        limited = {"set a quota": "/ann/d", "rename into a quota": "/limited"}.get(name)
        if limited is not None:
            quota = namespace.quota(world.metadata.reader(), parse_path(limited))
            assert quota is not None and quota.used.names == everything + (limited == "/limited")
    assert max(used.values()) < _LARGE / 5, used


async def _awaited(operation: Awaitable[object]) -> object:
    return await operation
