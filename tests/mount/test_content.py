"""The content of an open file, compared with a byte array: what local processes read, and what is published."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peacefs.client.mount import content as steps
from peacefs.client.mount.content import FileContent, Step, Stream

ROOM = 600


class Played:
    """A file in memory, with a stage, stream and cluster that do what the steps say."""

    def __init__(self, published: bytes | None) -> None:
        self.content = FileContent(None if published is None else len(published))
        self.model = bytearray(published or b"")
        self.cluster = published
        #: What other machines have seen so far.
        self.versions: list[bytes] = []
        self.stage = bytearray()
        self.sent: bytearray | None = None

    def play(self, wanted: list[Step], data: bytes, length: int) -> None:
        for step in wanted:
            match step:
                case steps.Keep(offset):
                    self._grow(offset)
                    self.stage[offset : offset + len(data)] = data
                case steps.Resize(new):
                    del self.stage[new:]
                    self._grow(new)
                case steps.Fetch(count):
                    assert self.cluster is not None and len(self.cluster) >= count
                    self._grow(count)
                    self.stage[:count] = self.cluster[:count]
                case steps.DropStage():
                    self.stage = bytearray()
                case steps.Begin(stream):
                    assert self.sent is None
                    if stream is Stream.NEW:
                        self.sent = self.stage[:length]
                    else:
                        assert self.cluster is not None and len(self.cluster) == length
                        self.sent = bytearray(self.cluster)
                case steps.Send():
                    assert self.sent is not None
                    self.sent += data
                case steps.SendZeros(count):
                    assert self.sent is not None
                    self.sent += bytes(count)
                case steps.Sync() | steps.End():
                    assert self.sent is not None
                    self._publish(bytes(self.sent))
                    self.sent = self.sent if isinstance(step, steps.Sync) else None
                case steps.Drop():
                    assert self.sent is not None
                    self.sent = None
                case steps.Publish():
                    self._publish(bytes(self.stage[: self.content.length]))
                case steps.Cut(new):
                    assert self.cluster is not None
                    self._publish(self.cluster[:new])

    def _grow(self, length: int) -> None:
        self.stage += bytes(max(length - len(self.stage), 0))

    def _publish(self, whole: bytes) -> None:
        self.cluster = whole
        self.versions.append(whole)

    def read(self) -> bytes:
        below, staged = self.content.staged_part(0, self.content.length)
        assert below == 0 or self.cluster is not None
        return (self.cluster or b"")[:below] + bytes(self.stage[below : below + staged])


#: Writes of several sizes and offsets, truncations, and operations on the whole file.
_OFFSETS = st.integers(0, 700)
_OPERATIONS = st.one_of(
    st.tuples(st.just("write"), _OFFSETS, st.binary(max_size=200)),
    st.tuples(st.just("append"), st.just(0), st.binary(max_size=200)),
    st.tuples(st.just("truncate"), _OFFSETS, st.just(b"")),
    st.tuples(st.sampled_from(["sync", "close", "replace", "detach"]), st.just(0), st.just(b"")),
)


@settings(max_examples=120, deadline=None, print_blob=True)
@given(published=st.none() | st.binary(max_size=400), operations=st.lists(_OPERATIONS, max_size=14))
def test_content_is_that_of_an_array_and_versions_are_whole(
    published: bytes | None, operations: list[tuple[str, int, bytes]]
) -> None:
    steps_after, steps.stream_after_bytes = steps.stream_after_bytes, 150  # type: ignore[misc]
    try:
        _play(Played(published), operations)
    finally:
        steps.stream_after_bytes = steps_after  # type: ignore[misc]


def _play(played: Played, operations: list[tuple[str, int, bytes]]) -> None:
    content, model = played.content, played.model
    refusals: list[int | None] = []
    for name, at, data in operations:
        #: Any state since the last publication may be published, and nothing else.
        before, length, seen = bytes(model), content.length, len(played.versions)
        try:
            match name:
                case "write" | "append":
                    offset = content.length if name == "append" else at
                    wanted = content.write(offset, len(data), ROOM)
                    if data or offset > len(model):
                        model += bytes(max(offset - len(model), 0))
                    model[offset : offset + len(data)] = data
                case "truncate":
                    wanted = content.truncate(at, ROOM)
                    del model[at:]
                    model += bytes(at - len(model))
                case "sync":
                    wanted = content.sync()
                case "close":
                    wanted = content.close()
                case "replace":
                    wanted = content.replace()
                    model.clear()
                case "detach":
                    wanted = content.detach(ROOM)
        except OSError as refused:
            refusals.append(refused.errno)
            assert (content.length, bytes(model)) == (length, before), "a refusal changes nothing"
            continue
        played.play(wanted, data, length)
        if name == "detach":
            # The caller deletes the file.
            played.cluster = None
        assert content.length == len(model)
        assert content.staged_bytes <= ROOM
        for version in played.versions[seen:]:
            assert version in (before, bytes(model)), "a version that no process made was published"
        if name in ("sync", "close"):
            assert (played.cluster, content.is_dirty) == (bytes(model), False)
        if content.staged_from is None and content.length > (content.published or 0):
            with pytest.raises(OSError, match="too long"):
                played.read()
        else:
            assert played.read() == model
    assert set(refusals) <= {errno.EFBIG}


@pytest.mark.parametrize("synced", [False, True])
def test_content_that_outgrew_its_room_can_only_be_extended(synced: bool) -> None:
    played = Played(None)
    for at in range(0, 1000, 100):
        played.play(played.content.write(at, 100, ROOM), b"x" * 100, at)
    if synced:
        played.play(played.content.sync(), b"", 1000)
        assert played.read() == b"x" * 1000
        played.play(played.content.write(1000, 100, ROOM), b"x" * 100, 1000)
    with pytest.raises(OSError, match="too large") as refused:
        played.content.write(0, 1, ROOM)
    assert refused.value.errno == errno.EFBIG
    played.play(played.content.close(), b"", played.content.length)
    assert played.cluster == b"x" * (1100 if synced else 1000)


def test_new_content_that_was_streamed_is_published_by_nothing_but_its_end() -> None:
    played = Played(None)
    played.play(played.content.write(0, 400, 10**9), b"a" * 400, 0)
    assert played.content.stream is None, "a small file is published by one call when it is closed"
    big = steps.stream_after_bytes
    played.play(played.content.write(400, big, 10**9), b"b" * big, 400)
    assert played.content.stream is Stream.NEW
    played.play(played.content.write(0, 1, 10**9), b"c", 400 + big)
    assert (played.content.stream, played.sent, played.versions) == (None, None, [])
    played.play(played.content.close(), b"", 400 + big)
    assert played.versions == [b"c" + b"a" * 399 + b"b" * big]
