"""A client with a directory that is its own, and what it knows must be in there, now and in each snapshot.

What failed may have happened or not, or may still happen while messages are under way: after a failure the client
waits until none can be, so that each thing is done, or not, before the next.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from simulation.name_changes import Change
from simulation.simulated_cluster import CHUNK_BYTES, append, change, flusher, read, write

from peacefs.protocol import effects as fx
from peacefs.protocol.errors import AccessDenied, FileNotFound, IllegalChange, PeacefsError

Contents = set[bytes | None]
_FILES = 3
_SNAPSHOTS_MAX = 3
_SIZES = (0, 1, 700, 64 * 1024, 300 * 1024, CHUNK_BYTES, CHUNK_BYTES + 5)
_OPERATIONS = (
    *("write", "write", "append", "append", "flush", "read", "truncate", "delete", "move"),
    *("take snapshot", "read snapshot", "drop snapshot", "restore snapshot", "trespass"),
)


@dataclass
class Snapshot:
    """What it shows if it is there, and whether it is for certain."""

    shows: dict[str, Contents]
    certain: bool = False


@dataclass
class PrivateDirectory:
    """For each name in the directory the contents that it may have; None stands for "not there"."""

    owner: str
    others: list[str]
    random: Random
    #: How long what has failed may still take to happen.
    doubt_s: float
    files: dict[str, Contents] = field(default_factory=dict)
    snapshots: dict[str, Snapshot] = field(default_factory=dict)
    acknowledged: dict[str, int] = field(default_factory=dict)
    failed: int = 0
    denied: int = 0
    _asked: int = 0

    @property
    def path(self) -> str:
        return f"/{self.owner}"

    def of(self, name: str) -> Contents:
        return self.files.get(name, {None})

    # -- what the client does ------------------------------------------------------------------------

    def set_up(self, superuser: str) -> fx.Steps[None]:
        """Everything until it has succeeded."""
        for what, other, number in (
            ("mkdirs", "", 0o700),
            ("own", self.owner, 0),
            ("allow snapshots", "", 0),
        ):
            while True:
                try:
                    yield from change(Change(what, self.path, superuser, self._request(), other, number))
                    break
                except PeacefsError:
                    yield from fx.sleep(self.doubt_s)

    def work(self, operations: int) -> fx.Steps[None]:
        """One thing after the other."""
        for _ in range(operations):
            what = self.random.choice(_OPERATIONS)
            try:
                if (yield from self._do(what, str(self.random.randrange(_FILES)))):
                    self.acknowledged[what] = self.acknowledged.get(what, 0) + 1
            except PeacefsError:
                self.failed += 1
                yield from fx.sleep(self.doubt_s)
            yield from fx.sleep(self.random.uniform(0.0, 1.0))

    def _do(self, what: str, name: str) -> fx.Steps[bool]:
        """Whether there was anything to do."""
        match what:
            case "write":
                yield from self._write(name)
            case "append":
                yield from self._append(name)
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
            case _:
                snapshot = self.random.choice(sorted(self.snapshots)) if self.snapshots else None
                return snapshot is not None and (yield from self._use_snapshot(what, snapshot, name))
        return True

    def _write(self, name: str) -> fx.Steps[None]:
        data = self._data()
        self.files[name] = self.of(name) | {data}
        yield from write(f"{self.path}/{name}", data, self._request(), self.owner)
        self.files[name] = {data}

    def _flush(self, name: str) -> fx.Steps[None]:
        """A file in parts; sometimes its writer is gone before the end, and leaves file and lease as they are."""
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
                # Where that fails it may be there or not, and nobody asks for it any more.
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

    def _trespass(self, other: str) -> fx.Steps[None]:
        """Nothing that is another's is read or changed, whatever is tried."""
        theirs, mine = f"/{other}/0", f"{self.path}/stolen"
        attempts = {
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

    # -- what is found -------------------------------------------------------------------------------

    def check(self, name: str, user: str) -> fx.Steps[None]:
        """Reads a file and compares; afterwards there is no doubt about it."""
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

    # -- asking --------------------------------------------------------------------------------------

    def _change(self, what: str, path: str, other: str = "", number: int = 0) -> fx.Steps[None]:
        yield from change(Change(what, path, self.owner, self._request(), other, number))

    def _request(self) -> str:
        self._asked += 1
        return f"{self.owner}-{self._asked}"

    def _data(self) -> bytes:
        return self.random.randbytes(self.random.choice(_SIZES))


def _brief(content: bytes | None) -> str:
    return "nothing" if content is None else f"{len(content)} bytes {content[:4].hex()}"
