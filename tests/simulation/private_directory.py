"""A client with a directory of its own, and its knowledge of what must be in the directory, snapshots and copies.

A failed request may have been carried out, or may still be while its messages are on the way. The client waits
after a failure until no messages can be left, so that the next request starts from a fixed state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from simulation.client_steps import (
    append,
    change,
    flusher,
    list_names,
    read,
    small_writes,
    stated,
    write,
    write_small,
)
from simulation.name_changes import Change
from simulation.terms import CHUNK_BYTES

from peacefs.client.transfer.small_writes import is_small
from peacefs.coordinator.operations.leases import lease_s
from peacefs.protocol.errors import (
    AccessDenied,
    FileNotFound,
    IllegalChange,
    LeaseError,
    PeacefsError,
    QuotaExceeded,
)
from peacefs.protocol.values.trash import CURRENT_NAME, TRASH_PERMISSION, trash_of
from peacefs.runtime import effects as fx

Contents = set[bytes | None]
_FILES = 3
_SNAPSHOTS_MAX = 3
_SIZES = (0, 1, 700, 64 * 1024, 300 * 1024, CHUNK_BYTES, CHUNK_BYTES + 5)
OPERATIONS = (
    *("write", "write small", "write small", "append", "append", "flush", "read", "truncate", "delete", "move"),
    *("take snapshot", "read snapshot", "drop snapshot", "restore snapshot", "trespass"),
    *("copy", "read copy", "drop copy", "discard", "recover", "limit"),
    *("join", "exchange", "state", "keep more", "outlive"),
)
_COPIES_MAX = 2
_NO_LIMIT = -1
_NAMES_MAX = (_NO_LIMIT, 4, 6, 9)
_BYTES_MAX = (_NO_LIMIT, 300 * 1024 * 3, 2 * CHUNK_BYTES * 3, 6 * CHUNK_BYTES * 3)


@dataclass
class Snapshot:
    """The contents of a snapshot or copy. `certain` is True if it is known to exist."""

    shows: dict[str, Contents]
    certain: bool = False


@dataclass
class PrivateDirectory:
    """A client with its own directory. `files` has the contents that each name may have; None means absent."""

    owner: str
    others: list[str]
    random: Random
    #: Maximum time until a failed request takes effect.
    doubt_s: float
    superuser: str = "simulated"
    #: The path of the directory, if it is not `/<owner>`.
    place: str = ""
    operations: tuple[str, ...] = OPERATIONS
    files: dict[str, Contents] = field(default_factory=dict)
    snapshots: dict[str, Snapshot] = field(default_factory=dict)
    copies: dict[str, Snapshot] = field(default_factory=dict)
    #: Discarded files, by their paths below Current or a checkpoint of the trash.
    discarded: dict[str, Contents] = field(default_factory=dict)
    #: True if a quota may have been set.
    limited: bool = False
    acknowledged: dict[str, int] = field(default_factory=dict)
    failed: int = 0
    denied: int = 0
    _asked: int = 0

    def __post_init__(self) -> None:
        self.small = small_writes(self.owner)

    @property
    def path(self) -> str:
        return self.place or f"/{self.owner}"

    @property
    def copies_path(self) -> str:
        return f"{self.path}-copies"

    @property
    def trash(self) -> str:
        return trash_of(self.owner)

    def of(self, name: str) -> Contents:
        return self.files.get(name, {None})

    # -- operations of the client --------------------------------------------------------------------

    def set_up(self) -> fx.Steps[None]:
        """Set up the directories; repeat each change until it succeeds."""
        for what, path, other, number in (
            ("mkdirs", self.path, "", 0o700),
            ("own", self.path, self.owner, 0),
            ("allow snapshots", self.path, "", 0),
            ("mkdirs", self.copies_path, "", 0o700),
            ("own", self.copies_path, self.owner, 0),
        ):
            while True:
                try:
                    yield from change(Change(what, path, self.superuser, self._request(), other, number))
                    break
                except PeacefsError:
                    yield from fx.sleep(self.doubt_s)

    def work(self, operations: int) -> fx.Steps[None]:
        """Do random operations, one after another."""
        for _ in range(operations):
            what = self.random.choice(self.operations)
            try:
                if (yield from self._do(what, str(self.random.randrange(_FILES)))):
                    self.acknowledged[what] = self.acknowledged.get(what, 0) + 1
            except PeacefsError as error:
                if isinstance(error, QuotaExceeded) and not self.limited:
                    raise AssertionError(f"there is no quota: {error.message}") from error
                self.failed += 1
                yield from fx.sleep(self.doubt_s)
            yield from fx.sleep(self.random.uniform(0.0, 1.0))

    def _do(self, what: str, name: str) -> fx.Steps[bool]:
        """Do an operation. Return False if there was nothing to do."""
        match what:
            case "write" | "state":
                yield from self._write(name, write if what == "write" else stated)
            case "write small":
                for _ in range(self.random.randint(1, 4)):
                    yield from self._write(name, self._small_or_not)
            case "append":
                yield from self._append(name)
            case "outlive":
                # This takes a minute, during which the client does nothing else, so skip it more often than not.
                if self.random.random() < 0.6:
                    return False
                yield from self._outlive(name)
            case "flush":
                yield from self._flush(name)
            case "truncate":
                yield from self._truncate(name)
            case "read":
                yield from self.check(name, self.owner)
            case "delete":
                self.files[name] = self.of(name) | {None}
                yield from self._change("delete", f"{self.path}/{name}")
                self.files[name] = {None}
            case "move":
                return (yield from self._move(name, f"{name}-{self._asked}"))
            case "take snapshot":
                return (yield from self._take_snapshot(f"s{self._asked}"))
            case "trespass":
                yield from self._trespass(self.random.choice(self.others))
            case "copy":
                return (yield from self._copy(f"c{self._asked}"))
            case "read copy" | "drop copy":
                copy = self.random.choice(sorted(self.copies)) if self.copies else None
                return copy is not None and (yield from self._use_copy(what, copy))
            case "discard":
                return (yield from self._discard(name))
            case "join" | "exchange":
                other = str(self.random.randrange(_FILES))
                trading = self._join(name, other) if what == "join" else self._exchange(name, other)
                return other != name and (yield from trading)
            case "keep more":
                return (yield from self._keep_more(name))
            case "recover":
                return bool(self.discarded) and (yield from self._recover(f"{name}-{self._asked}"))
            case "limit":
                yield from self._limit(self.random.choice((self.path, self.copies_path)))
            case _:
                snapshot = self.random.choice(sorted(self.snapshots)) if self.snapshots else None
                return snapshot is not None and (yield from self._use_snapshot(what, snapshot, name))
        return True

    def _write(self, name: str, by: Callable[[str, bytes, str, str], fx.Steps[None]]) -> fx.Steps[None]:
        data = self._data()
        self.files[name] = self.of(name) | {data}
        yield from by(f"{self.path}/{name}", data, self._request(), self.owner)
        self.files[name] = {data}

    def _small_or_not(self, path: str, data: bytes, request_id: str, user: str) -> fx.Steps[None]:
        """Write a file as our client writes data that is complete from the start."""
        if is_small(data):
            yield from write_small(self.small, path, data, user)
        else:
            yield from write(path, data, request_id, user)

    def _flush(self, name: str) -> fx.Steps[None]:
        """Write a file in parts. Sometimes the writer dies first and leaves an open file and its lease."""
        sink = yield from flusher(f"{self.path}/{name}", self._request(), self._request(), self.owner)
        content = b""
        for _ in range(self.random.randint(1, 4)):
            part = self._data()
            self.files[name] = self.of(name) | {content + part}
            yield from sink.flush(part)
            content += part
            self.files[name] = {content}
        if self.random.random() < 0.5:
            yield from sink.complete(b"")

    def _outlive(self, name: str) -> fx.Steps[None]:
        """Pause a writer until another one takes over its lease; the rest of its data is then refused."""
        sink = yield from flusher(f"{self.path}/{name}", self._request(), self._request(), self.owner)
        part = self._data()
        self.files[name] = self.of(name) | {part}
        yield from sink.flush(part)
        self.files[name] = {part}
        yield from fx.sleep(lease_s)
        yield from self._append(name)
        try:
            yield from self.random.choice((sink.flush, sink.complete))(b"too late")
        except LeaseError:
            return
        raise AssertionError(f"{name}: a lease that another has taken over is good for a change")

    def _append(self, name: str) -> fx.Steps[None]:
        data, before = self._data(), self.of(name)
        longer: Contents = {content + data for content in before if content is not None}
        self.files[name] = before | longer
        try:
            yield from append(f"{self.path}/{name}", data, self._request(), self.owner)
        except FileNotFound:
            assert None in before
            raise
        self.files[name] = longer

    def _truncate(self, name: str) -> fx.Steps[None]:
        length, before = self.random.choice(_SIZES), self.of(name)
        cut: Contents = {content[:length] for content in before if content is not None and len(content) >= length}
        self.files[name] = before | cut
        try:
            yield from self._change("truncate", f"{self.path}/{name}", number=length)
        except (FileNotFound, IllegalChange):
            assert any(content is None or len(content) < length for content in before)
            raise
        self.files[name] = cut

    def _move(self, source: str, target: str) -> fx.Steps[bool]:
        contents = self.of(source)
        if None in contents:
            return False
        self.files[source], self.files[target] = contents | {None}, contents | {None}
        yield from self._change("move", f"{self.path}/{source}", f"{self.path}/{target}")
        self.files[source], self.files[target] = {None}, contents
        return True

    def _join(self, target: str, source: str) -> fx.Steps[bool]:
        """Append one file to another without copying data (CONCAT)."""
        onto, moved = self.of(target), self.of(source)
        if None in onto | moved:
            return False
        longer: Contents = {
            before + end for before in onto for end in moved if before is not None and end is not None and end
        }
        self.files[target], self.files[source] = onto | longer, moved | {None}
        try:
            yield from self._change("join", f"{self.path}/{target}", f"{self.path}/{source}")
        except IllegalChange:
            assert b"" in moved
            raise
        self.files[target], self.files[source] = longer, {None}
        return True

    def _exchange(self, one: str, other: str) -> fx.Steps[bool]:
        first, second = self.of(one), self.of(other)
        if None in first | second:
            return False
        self.files[one] = self.files[other] = first | second
        yield from self._change("exchange", f"{self.path}/{one}", f"{self.path}/{other}")
        self.files[one], self.files[other] = second, first
        return True

    def _keep_more(self, name: str) -> fx.Steps[bool]:
        """Change the replication. Never set it so low that the simulated faults could lose data."""
        if None in self.of(name):
            return False
        yield from self._change("keep", f"{self.path}/{name}", number=self.random.choice((3, 4)))
        return True

    def _take_snapshot(self, name: str) -> fx.Steps[bool]:
        if len(self.snapshots) >= _SNAPSHOTS_MAX:
            return False
        taken = self.snapshots[name] = Snapshot({file: set(contents) for file, contents in self.files.items()})
        yield from self._change("take snapshot", self.path, name)
        taken.certain = True
        return True

    def _use_snapshot(self, what: str, name: str, file: str) -> fx.Steps[bool]:
        snapshot = self.snapshots[name]
        match what:
            case "read snapshot":
                yield from self.check_snapshot(name, file, self.owner)
            case "drop snapshot":
                # If this fails, the snapshot may or may not exist. Forget it in either case.
                del self.snapshots[name]
                yield from self._change("drop snapshot", self.path, name)
            case "restore snapshot":
                if not snapshot.certain:
                    return False
                names = {*self.files, *snapshot.shows}
                shown = {name: snapshot.shows.get(name, {None}) for name in names}
                self.files = {name: self.of(name) | shown[name] for name in names}
                yield from self._change("restore snapshot", self.path, name)
                self.files = {name: set(contents) for name, contents in shown.items()}
        return True

    def _copy(self, name: str) -> fx.Steps[bool]:
        if len(self.copies) >= _COPIES_MAX:
            return False
        copy = self.copies[name] = Snapshot({file: set(contents) for file, contents in self.files.items()})
        yield from self._change("copy", self.path, f"{self.copies_path}/{name}")
        copy.certain = True
        return True

    def _use_copy(self, what: str, name: str) -> fx.Steps[bool]:
        if what == "read copy":
            yield from self.check_copy(name, self.owner)
        else:
            # If this fails, the copy may or may not exist, as with a snapshot.
            del self.copies[name]
            yield from self._change("delete", f"{self.copies_path}/{name}")
        return True

    def _discard(self, name: str) -> fx.Steps[bool]:
        """Move a file to the trash as `client.trash` does."""
        contents = self.of(name)
        if None in contents:
            return False
        place = f"{self.owner}/{name}-{self._asked}"
        self.files[name] = self.discarded[place] = contents | {None}
        current = f"{self.trash}/{CURRENT_NAME}"
        yield from self._change("mkdirs", f"{current}/{self.owner}", number=TRASH_PERMISSION)
        yield from self._change("move", f"{self.path}/{name}", f"{current}/{place}")
        self.files[name], self.discarded[place] = {None}, contents
        return True

    def _recover(self, target: str) -> fx.Steps[bool]:
        """Move a file back from the trash, unless it has expired: clocks jump."""
        place = self.random.choice(sorted(self.discarded))
        listed = yield from list_names(self.trash, self.owner)
        if not listed.directories:
            # Everything in the trash has expired.
            return False
        checkpoint = self.random.choice(sorted(listed.directories))
        contents = self.discarded[place]
        self.discarded[place] = self.files[target] = contents | {None}
        yield from self._change("move", f"{self.trash}/{checkpoint}/{place}", f"{self.path}/{target}")
        self.discarded[place], self.files[target] = {None}, contents - {None}
        return True

    def _limit(self, path: str) -> fx.Steps[None]:
        names, space = self.random.choice(_NAMES_MAX), self.random.choice(_BYTES_MAX)
        self.limited = True
        request = Change("limit", path, self.superuser, self._request(), str(space), names)
        yield from change(request)

    def _trespass(self, other: str) -> fx.Steps[None]:
        """Try to read or change another client's files. Every attempt must be refused."""
        theirs, mine = f"/{other}/0", f"{self.path}/stolen"
        attempts: dict[str, Callable[[], fx.Steps[Any]]] = {
            "read": lambda: read(theirs, self.owner),
            "write": lambda: write(theirs, b"graffiti", self._request(), self.owner),
            "append": lambda: append(theirs, b"graffiti", self._request(), self.owner),
            "delete": lambda: self._change("delete", theirs),
            "take": lambda: self._change("move", theirs, mine),
            "give": lambda: self._change("move", f"{self.path}/0", f"/{other}/given"),
            "restore": lambda: self._change("restore snapshot", f"/{other}", "s0"),
        }
        what = self.random.choice(sorted(attempts))
        try:
            yield from attempts[what]()
        except AccessDenied:
            self.denied += 1
            return
        raise AssertionError(f"{self.owner} could {what} what is {other}'s")

    # -- checks --------------------------------------------------------------------------------------

    def check(self, name: str, user: str) -> fx.Steps[None]:
        """Read a file and compare it. Its content is certain afterwards."""
        content = yield from self._content(f"{self.path}/{name}", user)
        self._compare(name, content, self.of(name))
        self.files[name] = {content}

    def check_snapshot(self, name: str, file: str, user: str) -> fx.Steps[None]:
        snapshot = self.snapshots[name]
        content = yield from self._content(f"{self.path}/.snapshot/{name}/{file}", user)
        allowed = snapshot.shows.get(file, {None})
        self._compare(f"{name}/{file}", content, allowed if snapshot.certain else allowed | {None})
        if snapshot.certain:
            snapshot.shows[file] = {content}

    def check_copy(self, name: str, user: str) -> fx.Steps[None]:
        """Check that the copy equals its source at the time of the request. An unconfirmed copy may be missing."""
        copy, path = self.copies[name], f"{self.copies_path}/{name}"
        try:
            listed = yield from list_names(path, user)
        except FileNotFound:
            assert not copy.certain, f"{path} is not there"
            del self.copies[name]
            return
        assert not listed.directories and set(listed.files) <= set(copy.shows), f"{path} has {listed}"
        copy.certain = True
        for file in sorted(copy.shows):
            content = yield from self._content(f"{path}/{file}", user)
            self._compare(f"{path}/{file}", content, copy.shows[file])
            copy.shows[file] = {content}

    @staticmethod
    def _content(path: str, user: str) -> fx.Steps[bytes | None]:
        try:
            return (yield from read(path, user))
        except FileNotFound:
            return None

    def _compare(self, name: str, content: bytes | None, allowed: Contents) -> None:
        assert content in allowed, (
            f"{self.owner}/{name} has {_brief(content)}, and should have one of {sorted(map(_brief, allowed))}"
        )

    # -- requests ------------------------------------------------------------------------------------

    def _change(self, what: str, path: str, other: str = "", number: int = 0) -> fx.Steps[None]:
        yield from change(Change(what, path, self.owner, self._request(), other, number))

    def _request(self) -> str:
        self._asked += 1
        return f"{self.owner}-{self._asked}"

    def _data(self) -> bytes:
        return self.random.randbytes(self.random.choice(_SIZES))


def _brief(content: bytes | None) -> str:
    return "nothing" if content is None else f"{len(content)} bytes {content[:4].hex()}"
