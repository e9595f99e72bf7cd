"""Calls about names as our client makes them, with prepared answers of the coordinator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import msgspec
import pytest
from msgspec.structs import replace

from peacefs.client.acls import Acls
from peacefs.client.control.addresses import CoordinatorAddress
from peacefs.client.control.names import NameApi
from peacefs.client.control.retry import RetryPolicy
from peacefs.client.control.rpc import ControlRpc
from peacefs.client.control.token_source import TokenSource
from peacefs.client.quotas import Quotas
from peacefs.client.snapshots import Snapshots
from peacefs.client.xattrs import ExtendedAttributes
from peacefs.protocol.errors import PeerUnreachable, ProtocolViolation, Unauthenticated
from peacefs.protocol.frames import Frame
from peacefs.protocol.messages import (
    Failure,
    FileInfo,
    GetListing,
    Listing,
    Message,
    NameChange,
    NameChanged,
    NameStatus,
    RenamePath,
    SnapshotTaken,
    TracedMessage,
    TreeSums,
)
from peacefs.protocol.values.acl_entries import parse_acl
from peacefs.runtime.connection_pool import ConnectionPool


class Recorder:
    """Connections with prepared replies; records the requests."""

    def __init__(self, *replies: Message | PeerUnreachable, token: TokenSource | None = None) -> None:
        self._replies = list(replies)
        self.asked: list[Message] = []
        pool = cast(ConnectionPool, self)
        retry_policy = RetryPolicy(sleep=lambda _s: None)
        calls = ControlRpc(CoordinatorAddress("c.example", 9870), pool, retry_policy, token)
        self.api = NameApi(calls, "alice")

    def connect(self, _address: object, _name: str, _role: str) -> Recorder:
        return self

    def kept(self, _address: object, _name: str) -> None:
        return None

    def send_frames(self, frames: Sequence[Frame], _timeout_s: float) -> None:
        for frame in frames:
            message = frame.message
            # The id for logs differs each time.
            self.asked.append(replace(message, trace="") if isinstance(message, TracedMessage) else message)

    def receive(self, _timeout_s: float) -> Frame:
        reply = self._replies.pop(0)
        if isinstance(reply, PeerUnreachable):
            raise reply
        return Frame(reply)

    def release(self, _connection: object) -> None: ...

    def close(self, _connection: object) -> None: ...


def row(name: str, *, is_directory: bool = False, permission: int = 0o640) -> NameStatus:
    return NameStatus(name, is_directory, 7, "alice", "users", permission, 2, 1, 65536, 3)


def test_status_goes_without_a_file_id_between_sides_of_which_one_is_older() -> None:
    now = row("a")
    fields = [(name, kind) for name, kind in now.__annotations__.items() if name != "file_id"]
    before = msgspec.defstruct("OlderStatus", fields, array_like=True, namespace={}, module=NameStatus.__module__)
    with_id = msgspec.structs.replace(now, file_id=1 << 60)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(with_id), type=before).name == "a"
    of_before = msgspec.msgpack.encode(list(msgspec.structs.astuple(now))[: len(fields)])
    assert msgspec.msgpack.decode(of_before, type=NameStatus) == now and now.file_id == 0


def test_status_bears_the_path_that_was_asked_for() -> None:
    status = Recorder(FileInfo(row("", is_directory=True, permission=0o1777))).api.status("/a/50% #?")
    assert (status.path, status.name, status.is_directory, status.permission) == (
        "/a/50% #?",
        "50% #?",
        True,
        0o1777,
    )


def test_listing_goes_on_page_after_page_from_the_last_name() -> None:
    pages = [Listing([row("a"), row("b")], 3), Listing([row("c"), row("d")], 1), Listing([row("e")], 0)]
    recorder = Recorder(*pages)
    listed = [entry.path for found in recorder.api.pages("/dir") for entry in found.entries]
    assert listed == ["/dir/a", "/dir/b", "/dir/c", "/dir/d", "/dir/e"]
    assert recorder.asked == [GetListing("/dir", "alice", after) for after in ("", "b", "d")]


def test_listing_ends_even_if_the_coordinator_promises_entries_that_never_come() -> None:
    recorder = Recorder(Listing([row("a")], 2), Listing([], 2))
    assert len(list(recorder.api.pages("/dir"))) == 2


def test_listing_of_the_root_and_of_a_file_has_sound_paths() -> None:
    assert next(Recorder(Listing([row("a")], 0)).api.pages("/")).entries[0].path == "/a"
    assert next(Recorder(Listing([row("")], 0)).api.pages("/dir/file")).entries[0].path == "/dir/file"


def snapshots(api: NameApi) -> Snapshots:
    return Snapshots(api, lambda _path, _older, _newer: [])


#: Each with the coordinator's answer.
CHANGES: list[tuple[Callable[[NameApi], object], Message]] = [
    (lambda api: api.mkdirs("/a"), NameChanged()),
    (lambda api: api.rename("/a", "/b"), NameChanged()),
    (lambda api: api.exchange(("/a", "/b")), NameChanged()),
    (lambda api: api.delete("/a"), NameChanged()),
    (lambda api: api.copy("/a", "/b"), TreeSums(0, 1, 2, 3)),
    (lambda api: api.set_permission("/a", 0o700), NameChanged()),
    (lambda api: api.set_owner("/a", "bob", None), NameChanged()),
    (lambda api: api.set_times("/a", modified_ms=1, accessed_ms=2), NameChanged()),
    (lambda api: api.set_replication("/a", 2), NameChanged()),
    (lambda api: Quotas(api).set("/a", names=2), NameChanged()),
    (lambda api: ExtendedAttributes(api).set("/a", "user.a", b"1"), NameChanged()),
    (lambda api: ExtendedAttributes(api).remove("/a", "user.a"), NameChanged()),
    (lambda api: Acls(api).set("/a", parse_acl("user:bob:r--")), NameChanged()),
    (lambda api: api.truncate("/a", 0), NameChanged()),
    (lambda api: api.concat("/a", ["/b"]), NameChanged()),
    (lambda api: snapshots(api).allow("/a"), NameChanged()),
    (lambda api: snapshots(api).disallow("/a"), NameChanged()),
    (lambda api: snapshots(api).create("/a", None), SnapshotTaken("/a/.snapshot/s")),
    (lambda api: snapshots(api).rename("/a", "s", "t"), NameChanged()),
    (lambda api: snapshots(api).delete("/a", "s"), NameChanged()),
    (lambda api: snapshots(api).restore("/a", "s"), NameChanged()),
]


@pytest.mark.parametrize(("change", "done"), CHANGES)
def test_change_whose_answer_was_lost_is_asked_again_under_its_id_and_another_one_has_another(
    change: Callable[[NameApi], object], done: Message
) -> None:
    recorder = Recorder(PeerUnreachable("the answer was lost"), done, done)
    change(recorder.api)
    change(recorder.api)
    first, again, another = recorder.asked
    assert isinstance(first, NameChange) and isinstance(another, NameChange)
    assert first == again and first.request_id
    assert first.request_id != another.request_id


def test_rename_never_replaces_unless_told_to() -> None:
    recorder = Recorder(NameChanged(), NameChanged())
    recorder.api.rename("/a", "/b")
    recorder.api.rename("/a", "/b", overwrite=True)
    assert [cast(RenamePath, asked).overwrite for asked in recorder.asked] == [False, True]


def test_answer_to_something_else_is_a_fault_and_not_a_value() -> None:
    with pytest.raises(ProtocolViolation, match="FileInfo expected"):
        Recorder(NameChanged()).api.status("/a")


class ReplacedToken(TokenSource):
    """A token file that is replaced after it was read."""

    def __init__(self, *tokens: str) -> None:
        self._tokens = list(tokens)

    def current(self) -> str:
        return self._tokens.pop(0) if len(self._tokens) > 1 else self._tokens[0]


def test_token_that_was_replaced_meanwhile_is_shown_before_a_refusal_is_believed() -> None:
    refused = Failure("Unauthenticated", "the token has ended")
    # The file is read when the client is made, when it sends a request, and when it is refused.
    replaced = ReplacedToken("old", "old", "new")
    assert Recorder(refused, FileInfo(row("")), token=replaced).api.status("/a").length == 7
    with pytest.raises(Unauthenticated):
        Recorder(refused, FileInfo(row("")), token=ReplacedToken("old")).api.status("/a")
