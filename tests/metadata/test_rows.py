"""Rows in memory, compared with a dictionary: reads agree whatever was dropped, undone or written to the image.

Also, a read whose result would change if entries were lost reports on which entry it depends.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace
from support.long_runs import often

from peacefs.coordinator.metadata import answers
from peacefs.coordinator.metadata.log.entry import Content
from peacefs.coordinator.metadata.model import Inode, InodeKind
from peacefs.coordinator.metadata.reader import Reader
from peacefs.coordinator.metadata.row_store import Rows, row_of
from peacefs.coordinator.metadata.sqlite import row_digest
from peacefs.coordinator.metadata.sqlite.connections import connect_plain
from peacefs.coordinator.metadata.sqlite.image import ImageReader, ImageWriter
from peacefs.coordinator.metadata.sqlite.schema import fill, migrate
from peacefs.coordinator.metadata.tables import (
    ATTRIBUTE,
    CHUNK,
    ENTRY,
    INODE,
    LIVE,
    PAST,
    QUOTA,
    REFERENCE,
    REQUEST,
    SNAPSHOT,
    TABLES,
    Row,
)

State = dict[int, dict[tuple[Any, ...], Row]]
_NAMES = "abcdeé"
_ROOT = 1


class Twin:
    """`Rows` over an image that lacks entries, and a plain dictionary with the expected rows after each entry."""

    def __init__(self, random: Random, monkeypatch: pytest.MonkeyPatch) -> None:
        self.random = random
        image = connect_plain(":memory:")
        migrate(image)
        fill(image, "cluster", "root")
        self.image, self.writer = image, ImageWriter(image)
        monkeypatch.setattr(answers, "answers_in_memory_max", random.choice([0, 2, 100]))
        monkeypatch.setattr(Rows.whole_directory, "__defaults__", (random.choice([0, 1, 3, 100]),))
        self.rows = Rows(ImageReader(image), 0, names_max=random.choice([1, 2, 8, 1000]))
        weight = random.choice([1, 2, 8, 1000])
        for cache in (self.rows.groups, self.rows.places, self.rows.single):
            cache._weight_max = weight  # type: ignore[attr-defined]
        self.reader = Reader(self.rows)
        root = image.execute("SELECT * FROM inode").fetchone()
        self.now: State = {table: {} for table in range(len(TABLES))}
        self.now[INODE][_ROOT,] = root
        #: The expected rows after each closed entry, and the changes of each entry in the form of the log.
        self.states: dict[int, State] = {0: self.copy()}
        self.sealed: dict[int, list[tuple[int, Row]]] = {}
        self.next_inode, self.next_request, self.now_ms, self.tx = 2, 0, 0, 0

    def copy(self) -> State:
        return {table: dict(rows) for table, rows in self.now.items()}

    # -- changes ---------------------------------------------------------------------------------------

    def change(self) -> None:
        self.tx += 1
        self.random.choice(
            [
                *(self.make, self.make, self.name, self.name, self.unname, self.unname, self.alter, self.drop),
                *(self.put, self.put, self.delete, self.answer, self.answer, self.forget),
            ]
        )()

    def inodes(self, kind: InodeKind | None = None) -> list[int]:
        number = {None: None, InodeKind.FILE: 0, InodeKind.DIRECTORY: 1}[kind]
        return [key[0] for key, row in self.now[INODE].items() if number is None or row[3] == number]

    def make(self) -> None:
        kind = self.random.choice(list(InodeKind))
        if any(key[0] == self.next_inode for key in self.now[REFERENCE]):
            # No new file has references.
            kind = InodeKind.DIRECTORY
        inode = Inode(self.next_inode, kind, 0o644, "ann", "", 1, 1, 0, 0, 1, from_tx=self.tx)
        self.next_inode += 1
        self.rows.keep_inode(inode, is_new=True)
        self.now[INODE][inode.inode,] = row_of(inode)

    def alter(self) -> None:
        number = self.random.choice(self.inodes())
        inode = self.rows.inode(number)
        assert inode is not None
        inode = replace(inode, length=self.random.randrange(100))
        self.rows.keep_inode(inode)
        self.now[INODE][number,] = row_of(inode)

    def drop(self) -> None:
        named = {row[4] for row in self.now[ENTRY].values()} | {key[0] for key in self.now[ENTRY]} | {_ROOT}
        unnamed = [number for number in self.inodes() if number not in named]
        if unnamed:
            number = self.random.choice(unnamed)
            if self.random.random() < 0.5:
                retired = (number, self.tx, *self.now[INODE][number,][2:])
                self.rows.put(INODE + PAST, retired)
                self.now[INODE + PAST][number, self.tx] = retired
            self.rows.drop_inode(number)
            del self.now[INODE][number,]

    def name(self) -> None:
        named = {row[4] for row in self.now[ENTRY].values()} | {_ROOT}
        unnamed = [number for number in self.inodes() if number not in named]
        parent, name = self.random.choice(self.inodes(InodeKind.DIRECTORY)[:2]), self.random.choice(_NAMES)
        if unnamed and (parent, name) not in self.now[ENTRY]:
            row = (parent, name, LIVE, self.tx, self.random.choice(unnamed), None, None, None)
            self.rows.add_name(row)
            self.now[ENTRY][parent, name] = row

    def unname(self) -> None:
        if self.now[ENTRY]:
            key = self.random.choice(sorted(self.now[ENTRY]))
            row = self.now[ENTRY].pop(key)
            if self.random.random() < 0.5:
                retired = (*key, self.tx, *row[3:])
                self.rows.put(ENTRY + PAST, retired)
                self.now[ENTRY + PAST][*key, self.tx] = retired
            self.rows.drop_name(*key, row[4])

    def put(self) -> None:
        number, value = self.random.randrange(1, 5), self.random.randrange(100)
        table, row = self.random.choice(
            [
                (CHUNK, (number, 1, value, 7, 1, 1, "[]")),
                (REFERENCE, (number, value % 3, LIVE, self.tx, value, 5, None)),
                (REFERENCE + PAST, (number, value % 3, self.tx, self.tx - 1, value, 5, None)),
                (ATTRIBUTE, (number, _NAMES[value % 3], LIVE, self.tx, b"%d" % value, None)),
                (QUOTA, (number, value, None, 1, 2)),
                (SNAPSHOT, (number, _NAMES[value % 3], value, 5)),
            ]
        )
        self.rows.put(table, row)
        self.now[table][row[: len(TABLES[table].keys)]] = row

    def delete(self) -> None:
        table = self.random.choice([CHUNK, REFERENCE, REFERENCE + PAST, ATTRIBUTE, QUOTA, SNAPSHOT])
        if self.now[table]:
            key = self.random.choice(sorted(self.now[table]))
            second = None if len(key) == 1 else key[1] if len(key) == 2 else key[1:]
            self.rows.delete(table, key[0], second)
            del self.now[table][key]

    def answer(self) -> None:
        self.now_ms += 1
        ids = {row[1] for row in self.now[REQUEST].values()}
        self.next_request += self.random.random() < 0.8
        request = f"r{self.next_request:06}"
        if request in ids:
            return
        number = self.rows.answers.next
        assert (number,) not in self.now[REQUEST]
        self.rows.answers.add(request, b"yes", self.now_ms)
        self.now[REQUEST][number,] = (number, request, b"yes", self.now_ms)

    def forget(self) -> None:
        before_ms = self.now_ms - self.random.randrange(6)
        limit, keep = self.random.randrange(1, 4), self.random.randrange(3)
        numbers = sorted(self.now[REQUEST])
        old = [number for number in numbers[: len(numbers) - keep] if self.now[REQUEST][number][3] < before_ms][
            :limit
        ]
        assert self.rows.answers.drop_oldest(before_ms, limit, keep) == len(old)
        for number in old:
            del self.now[REQUEST][number]

    # -- entries ---------------------------------------------------------------------------------------

    def request(self) -> None:
        """Make some changes, and sometimes undo them."""
        mark, before = self.rows.mark(), self.copy()
        for _ in range(self.random.randrange(1, 4)):
            self.change()
        if self.random.random() < 0.3:
            self.rows.take_back(mark)
            self.now = before

    def seal(self) -> None:
        if self.rows.ops:
            number = self.rows.number
            self.sealed[number] = self.rows.seal()
            self.states[number] = self.copy()

    def become_durable(self) -> None:
        for _ in range(self.random.choice([1, 1, 100])):
            if self.rows.durable + 1 in self.sealed:
                self.rows.durable += 1
                self.states.pop(self.rows.durable - 1, None)

    def refuse(self) -> None:
        """Undo a closed entry, or the one under construction, with all that follow it."""
        first = self.random.randint(self.rows.durable + 1, self.rows.number)
        self.rows.unseal(first)
        for number in [number for number in self.sealed if number >= first]:
            del self.sealed[number], self.states[number]
        self.now = self.states[first - 1]
        self.now = self.copy()
        waiting = [number for number, _ in self.rows._waiting]
        for table, rows in enumerate(self.rows.changed):
            for found in rows.values():
                numbers = [number for number, _ in found.values()] if TABLES[table].is_nested else [found[0]]
                assert set(numbers) <= set(waiting), "nobody would take it out of memory any more"

    def bring_to_image(self) -> None:
        last = self.random.choice([self.random.randint(self.writer.number, self.rows.durable), self.rows.durable])
        wanted = range(self.writer.number + 1, last + 1)
        self.writer.apply([(number, number, Content(18, 0, 0, 1, self.sealed[number])) for number in wanted])

    def hear_of_image(self) -> None:
        number = self.random.choice([self.random.randint(0, self.writer.number), self.writer.number])
        self.rows.imaged(number)

    def read_of_log(self) -> None:
        """Simulate a start: read all that the image lacks from the log into new `Rows`."""
        if self.rows.ops:
            return
        numbers = [number for number in sorted(self.sealed) if number > self.writer.number]
        durable = self.rows.durable
        monkeyed = [cache._weight_max for cache in (self.rows.groups, self.rows.places, self.rows.single)]
        self.rows = Rows(ImageReader(self.image), self.writer.number, names_max=self.random.choice([1, 8]))
        for cache, weight in zip((self.rows.groups, self.rows.places, self.rows.single), monkeyed, strict=True):
            cache._weight_max = weight  # type: ignore[attr-defined]
        for number in numbers:
            for table, row in self.sealed[number]:
                of = table if table >= 0 else ~table
                keys = len(TABLES[of].keys)
                second = None if keys == 1 else row[1] if keys == 2 else row[1:3]
                self.rows.take_in(of, row if table >= 0 else None, row[0], second)
            self.rows.seal()
        self.rows.durable = durable
        self.reader = Reader(self.rows)

    # -- reads -----------------------------------------------------------------------------------------

    def read(self) -> None:
        for _ in range(3):
            read, expected = self.random.choice(_READS)(self)
            self.rows.ahead = 0
            found = read()
            assert found == expected(self.now), (read.__name__, found)
            # Find the first entry after which the result is the same until now.
            needed = self.rows.number
            while needed > self.rows.durable and expected(self.states[needed - 1]) == found:
                needed -= 1
            if needed > self.rows.durable:
                assert self.rows.ahead >= needed, "it would be told before it is durable"

    def check_image(self) -> None:
        """Bring the image up to date, and compare its rows with the expected ones."""
        if self.rows.ops:
            self.seal()
        self.rows.durable = self.rows.number - 1
        wanted = range(self.writer.number + 1, self.rows.durable + 1)
        self.writer.apply([(number, number, Content(18, 0, 0, 1, self.sealed[number])) for number in wanted])
        self.rows.imaged(self.rows.durable)
        assert not any(self.rows.changed) and not self.rows._entries_of
        for table, shape in enumerate(TABLES):
            if table and self.now[table]:
                where = (
                    ""
                    if not (shape.is_live or shape.is_past)
                    else f" WHERE to_tx {'=' if shape.is_live else '<'} {LIVE}"
                )
                rows = self.image.execute(f"SELECT * FROM {shape.name}{where}").fetchall()
                assert {row[: len(shape.keys)]: row for row in rows} == self.now[table]
        assert row_digest.difference(self.image) is None


Read = Callable[[], Any]
Expected = Callable[[State], Any]


def _inode(twin: Twin) -> tuple[Read, Expected]:
    number = twin.random.randrange(1, twin.next_inode + 1)

    def read() -> Row | None:
        inode = twin.rows.inode(number)
        return None if inode is None else row_of(inode)

    return read, lambda state: state[INODE].get((number,))


def _child(twin: Twin) -> tuple[Read, Expected]:
    parent, name = twin.random.randrange(1, twin.next_inode), twin.random.choice(_NAMES)

    def expected(state: State) -> int | None:
        row = state[ENTRY].get((parent, name))
        return row[4] if row else None

    return lambda: twin.rows.child(parent, name), expected


def _names_after(twin: Twin) -> tuple[Read, Expected]:
    parent, after = twin.random.randrange(1, twin.next_inode), twin.random.choice(["", *_NAMES])
    limit = twin.random.randrange(1, 8)

    def expected(state: State) -> list[str]:
        return sorted(name for of, name in state[ENTRY] if of == parent and name > after)[:limit]

    return lambda: twin.rows.names_after(parent, after, limit), expected


def _place(twin: Twin) -> tuple[Read, Expected]:
    number = twin.random.randrange(1, twin.next_inode)

    def expected(state: State) -> tuple[Any, ...] | None:
        return next((key for key, row in state[ENTRY].items() if row[4] == number), None)

    return lambda: twin.rows.place(number), expected


def _entry_versions(twin: Twin) -> tuple[Read, Expected]:
    number = twin.random.randrange(1, twin.next_inode)

    def read() -> list[Row]:
        found = sorted(twin.rows.entry_versions(number))
        # Only changes call this, and they wait for their own entry.
        twin.rows.ahead = twin.rows.number
        return found

    return read, lambda state: sorted(
        row for table in (ENTRY, ENTRY + PAST) for row in state[table].values() if row[4] == number
    )


def _group(twin: Twin) -> tuple[Read, Expected]:
    table, first = twin.random.choice([REFERENCE, ATTRIBUTE]), twin.random.randrange(1, 5)
    return lambda: twin.rows.group(table, first), lambda state: [
        row for key, row in sorted(state[table].items()) if key[0] == first
    ]


def _row(twin: Twin) -> tuple[Read, Expected]:
    table = twin.random.choice([ENTRY, REFERENCE, REFERENCE + PAST, ATTRIBUTE, ENTRY + PAST, INODE + PAST])
    keys = sorted({key for state in (*twin.states.values(), twin.now) for key in state[table]})
    key = twin.random.choice(keys) if keys else (1,) * len(TABLES[table].keys)
    second = key[1] if len(key) == 2 else key[1:]
    return lambda: twin.rows.row(table, key[0], second), lambda state: state[table].get(key)


def _cached_row(twin: Twin) -> tuple[Read, Expected]:
    number = twin.random.randrange(1, 5)
    return lambda: twin.rows.cached_row(CHUNK, number), lambda state: state[CHUNK].get((number,))


def _small(twin: Twin) -> tuple[Read, Expected]:
    if twin.random.random() < 0.5:
        number, name = twin.random.randrange(1, 5), twin.random.choice(_NAMES[:3])
        return lambda: twin.rows.small_row(SNAPSHOT, number, name), lambda state: state[SNAPSHOT].get(
            (number, name)
        )
    return lambda: sorted(twin.rows.small_rows(QUOTA)), lambda state: sorted(state[QUOTA].values())


def _answer(twin: Twin) -> tuple[Read, Expected]:
    request = f"r{twin.random.randrange(twin.next_request + 2):06}"

    def read() -> Row | None:
        found = twin.rows.answers.find(request)
        if found is None:
            # No answer depends on a request id that is not found.
            twin.rows.ahead = twin.rows.number
        return found

    return read, lambda state: next((row for row in state[REQUEST].values() if row[1] == request), None)


def _chunks(twin: Twin) -> tuple[Read, Expected]:
    limit = twin.random.randrange(1, 4)

    def read() -> list[int]:
        found: list[int] = []
        while page := twin.reader.chunks(found[-1] if found else 0, limit):
            found += [record.chunk for record in page]
        return found

    return read, lambda state: sorted(key[0] for key in state[CHUNK])


def _entries(twin: Twin) -> tuple[Read, Expected]:
    limit = twin.random.randrange(1, 4)

    def read() -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = [(0, "", 0)]
        while page := twin.reader.entries(*found[-1][:2], limit):
            found += page
        return found[1:]

    return read, lambda state: [(*key, row[4]) for key, row in sorted(state[ENTRY].items())]


def _children(twin: Twin) -> tuple[Read, Expected]:
    parent = twin.random.choice(twin.inodes(InodeKind.DIRECTORY))
    limit = twin.random.randrange(1, 8)

    def read() -> list[tuple[str, int, int]]:
        return [(name, inode.inode, inode.length) for name, inode in twin.reader.children(parent, "", limit)]

    def expected(state: State) -> list[tuple[str, int, int]]:
        found = sorted((key[1], row[4]) for key, row in state[ENTRY].items() if key[0] == parent)[:limit]
        return [(name, inode, state[INODE][inode,][9]) for name, inode in found]

    return read, expected


_READS: list[Callable[[Twin], tuple[Read, Expected]]] = [
    *(_inode, _child, _names_after, _place, _entry_versions, _group, _row, _cached_row, _small, _answer, _chunks),
    *(_entries, _children),
]


@pytest.mark.parametrize("part", range(often(5, 1000)))
def test_rows_agree_with_a_dictionary(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = int(os.environ.get("PEACEFS_SEED") or Random().randrange(2**32))
    print(f"seed {seed}")
    twin = Twin(Random(seed), monkeypatch)
    steps = [
        *(twin.request, twin.request, twin.request, twin.read, twin.read, twin.read, twin.seal),
        *(twin.become_durable, twin.become_durable, twin.bring_to_image, twin.hear_of_image),
    ]
    for _ in range(400):
        step = twin.random.random()
        if step < 0.04:
            twin.refuse()
        elif step < 0.05:
            twin.read_of_log()
        else:
            twin.random.choice(steps)()
    twin.check_image()


def test_rows_under_construction_are_found_by_inode_although_the_image_has_all_entries_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    twin = Twin(Random(1), monkeypatch)
    twin.make()
    twin.seal()
    twin.become_durable()
    twin.rows.add_name((_ROOT, "a", LIVE, 2, 2, None, None, None))
    twin.bring_to_image()
    twin.writer.apply([(1, 1, Content(18, 0, 0, 1, twin.sealed[1]))] if twin.writer.number == 0 else [])
    twin.rows.imaged(1)
    twin.rows.places.clear()
    assert twin.rows.place(2) == (_ROOT, "a")


@pytest.mark.parametrize("change", ["gone", "another"])
def test_rows_of_names_are_those_that_changed_after_a_page_of_a_large_directory(
    monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    twin = Twin(Random(1), monkeypatch)
    for number, name in enumerate("abc"):
        inode = Inode(2 + number, InodeKind.FILE, 0o644, "ann", "", 1, 1, 0, 0, 1)
        twin.rows.keep_inode(inode, is_new=True)
        twin.rows.add_name((_ROOT, name, LIVE, 1, inode.inode, None, None, None))
    twin.writer.apply([(1, 1, Content(18, 0, 0, 1, twin.rows.seal()))])
    twin.rows.durable = 1
    twin.rows.imaged(1)
    twin.rows.drop_name(_ROOT, "b", 3)
    if change == "another":
        twin.rows.add_name((_ROOT, "b", LIVE, 2, 99, None, None, None))
    monkeypatch.setattr(Rows.whole_directory, "__defaults__", (1,))
    twin.rows.names.clear()
    assert twin.rows.names_after(_ROOT, "", 10) == (["a", "c"] if change == "gone" else ["a", "b", "c"])
    assert twin.rows.child(_ROOT, "b") == (None if change == "gone" else 99)


def test_rows_of_answers_that_a_new_leader_numbers_from_the_first_are_dropped_in_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The leader began without answers. A standby that had older ones knows up to which they were deleted."""
    twin = Twin(Random(1), monkeypatch)
    rows = twin.rows
    for number in (1, 2, 3):
        rows.take_in(REQUEST, (number, f"old-{number}", b"", 1), number, None)
    for number in (1, 2, 3):
        rows.take_in(REQUEST, None, number, None)
    rows.take_in(REQUEST, (1, "new", b"yes", 5), 1, None)
    assert rows.answers.find("new") == (1, "new", b"yes", 5)
    assert rows.answers.find("old-2") is None
    assert rows.answers.drop_oldest(6, 10, 0) == 1 and rows.answers.find("new") is None
