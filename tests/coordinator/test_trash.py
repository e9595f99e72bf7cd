"""The coordinator's part of the trash: making checkpoints, and expiring them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from support.immediate_commit import CommitsAtOnce, durable_at_once
from support.no_links import NoLinks
from support.play import Play

from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.metadata.sqlite.store import store_in_memory
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.coordinator.operations.context import OperationContext
from peacefs.coordinator.operations.names import Names
from peacefs.coordinator.operations.trash import Trash
from peacefs.protocol.tokens import Signer
from peacefs.protocol.values.trash import checkpoint_name, checkpoint_time_ms, has_expired

MINUTES = 60
TRASH = "/user/ann/.Trash"


class Emptied:
    """A namespace whose clock the test moves, with a trash that keeps files for an hour."""

    def __init__(self, play: Play, kept_minutes: int = 60) -> None:
        self.metadata = store_in_memory()
        play.begin_epoch(self.metadata)
        self.wall_s = 3600.0 * 24 * 365 * 50
        self.turns = 0
        self.refuse: Callable[[], object] = lambda: None

        async def pause(_s: float) -> None:
            self.turns += 1

        context = OperationContext(
            self.metadata.reader(),
            CommitsAtOnce(self.metadata, lambda: self.refuse()),
            play.core,
            Signer(b"secret"),
            NoLinks(),
            durable_at_once(self.metadata),
            wall_clock=lambda: self.wall_s,
            sleep=pause,
        )
        self._context, self._kept_minutes = context, kept_minutes
        self.start()

    def start(self) -> None:
        """Start the coordinator, which then checks for the first time."""
        self.trash = Trash(self._context, Names(self._context), self._kept_minutes)
        asyncio.run(self.trash.empty())

    def mkdirs(self, path: str) -> None:
        now_ms = int(self.wall_s * 1000)
        run_now(self.metadata, lambda tx: namespace.mkdirs(tx, parse_path(path), "ann", 0o755, now_ms))

    def names(self, path: str = TRASH) -> list[str]:
        return [entry.name for entry in namespace.list_page(self.metadata.reader(), parse_path(path)).entries]

    def pass_time(self, minutes: int) -> None:
        """Let time pass, while the coordinator checks once a minute."""
        for _ in range(minutes):
            self.wall_s += MINUTES
            asyncio.run(self.trash.empty())


@pytest.fixture
def emptied(play: Play) -> Emptied:
    return Emptied(play)


def test_trash_is_kept_for_its_time_and_no_longer_than_twice(emptied: Emptied) -> None:
    emptied.pass_time(7)
    emptied.mkdirs(f"{TRASH}/Current/data/x")
    emptied.pass_time(52)
    assert emptied.names() == ["Current"]
    emptied.pass_time(1)
    made = checkpoint_name(int(emptied.wall_s * 1000))
    assert emptied.names() == [made]
    assert emptied.names(f"{TRASH}/{made}") == ["data"]
    emptied.mkdirs(f"{TRASH}/Current/data/y")
    emptied.pass_time(60)
    later = checkpoint_name(int(emptied.wall_s * 1000))
    assert emptied.names() == [made, later]
    emptied.pass_time(1)
    assert emptied.names() == [later]
    emptied.pass_time(61)
    assert emptied.names() == []


def test_a_coordinator_that_starts_makes_no_checkpoint_at_once(emptied: Emptied) -> None:
    emptied.mkdirs(f"{TRASH}/Current/x")
    emptied.pass_time(10)
    emptied.start()
    emptied.pass_time(10)
    assert emptied.names() == ["Current"]


def test_one_that_is_never_up_when_a_period_ends_makes_checkpoints_when_it_starts(emptied: Emptied) -> None:
    for day in range(3):
        emptied.wall_s += 125 * MINUTES
        emptied.start()
        if day:
            made = checkpoint_name(int(emptied.wall_s * 1000))
            assert emptied.names() == [made], "what was thrown away last time, and nothing older"
            assert emptied.names(f"{TRASH}/{made}") == [str(day - 1)]
        emptied.mkdirs(f"{TRASH}/Current/{day}")
        emptied.pass_time(10)


def test_a_name_that_is_taken_gets_a_number(emptied: Emptied) -> None:
    emptied.mkdirs(f"{TRASH}/Current/x")
    name = checkpoint_name(int((emptied.wall_s + 3600) * 1000))
    emptied.mkdirs(f"{TRASH}/{name}")
    emptied.mkdirs(f"{TRASH}/{name}-1")
    emptied.pass_time(60)
    assert emptied.names() == [name, f"{name}-1", f"{name}-2"]
    emptied.pass_time(61)
    assert emptied.names() == []


def test_only_checkpoints_are_deleted(emptied: Emptied) -> None:
    for path in ("/user/ann/.Trash/notes/x", "/user/ann/700101000000", "/user/bob/x", "/data/.Trash/700101000000"):
        emptied.mkdirs(path)
    emptied.mkdirs(f"{TRASH}/700101000000/x")
    emptied.pass_time(130)
    assert emptied.names() == ["notes"]
    assert emptied.names("/user/ann") == [".Trash", "700101000000"]
    assert emptied.names("/data/.Trash") == ["700101000000"]


def test_many_users_are_looked_at_in_turns(emptied: Emptied) -> None:
    for number in range(120):
        emptied.mkdirs(f"/user/u{number:03}/.Trash/Current/x")
    emptied.pass_time(60)
    assert all(emptied.names(f"/user/u{number:03}/.Trash") != ["Current"] for number in range(120))
    assert emptied.turns >= 2 * 60


def test_trash_that_cannot_be_deleted_now_holds_nobody_up(emptied: Emptied) -> None:
    """A directory with snapshots cannot be renamed; other users' trash is handled nevertheless."""
    from peacefs.coordinator.namespace import snapshots

    for user in ("ann", "bob"):
        emptied.mkdirs(f"/user/{user}/.Trash/Current/x")
    path = parse_path(f"{TRASH}/Current/x")
    run_now(emptied.metadata, lambda tx: snapshots.allow(tx, path))
    run_now(emptied.metadata, lambda tx: snapshots.create(tx, path, "s", 1))
    emptied.pass_time(60)
    assert emptied.names() == ["Current"]
    assert emptied.names("/user/bob/.Trash") != ["Current"]


def test_without_a_trash_nothing_is_touched(play: Play) -> None:
    emptied = Emptied(play, kept_minutes=0)
    emptied.mkdirs(f"{TRASH}/Current/x")
    emptied.mkdirs(f"{TRASH}/700101000000/x")
    emptied.pass_time(500)
    assert emptied.names() == ["700101000000", "Current"]


def test_checkpoints_are_named_by_the_time_in_utc() -> None:
    assert checkpoint_name(1_795_197_600_123) == "261120180000"
    assert checkpoint_time_ms("261120180000") == checkpoint_time_ms("261120180000-12") == 1_795_197_600_000
    for name in ("Current", "26112018000", "261320180000", "261120180000x", "261120180000-", ""):
        assert checkpoint_time_ms(name) is None
        assert not has_expired(name, 10**15, 1)
    assert has_expired("261120180000", 1_795_197_600_000 + 60_001, 1)
    assert not has_expired("261120180000", 1_795_197_600_000 + 60_000, 1)
