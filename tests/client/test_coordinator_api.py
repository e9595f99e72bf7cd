"""The client's requests arrive as WebHDFS and REST have them, and their answers as values."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, unquote

import httpx
import pytest

from peacefs.client.control.addresses import CoordinatorAddress
from peacefs.client.control.api import CoordinatorApi, current_user
from peacefs.client.control.http import CoordinatorHttp
from peacefs.client.control.retry import RetryPolicy
from peacefs.protocol.errors import PeerRefused

Reply = dict[str, Any] | list[Any] | httpx.TransportError


class Recorder:
    """Gives the prepared replies in turn and keeps the requests."""

    def __init__(self, *replies: Reply) -> None:
        self._replies = list(replies)
        self.requests: list[httpx.Request] = []
        http = CoordinatorHttp(
            CoordinatorAddress("c.example", 9870),
            RetryPolicy(sleep=lambda _s: None),
            transport=httpx.MockTransport(self._react),
        )
        self.api = CoordinatorApi(http, "alice")

    def _react(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        reply = self._replies.pop(0)
        if isinstance(reply, httpx.TransportError):
            raise reply
        return httpx.Response(200, content=json.dumps(reply).encode())

    def query(self, index: int = -1) -> dict[str, str]:
        found = parse_qs(self.requests[index].url.query.decode(), keep_blank_values=True)
        return {name: values[0] for name, values in found.items()}

    def body(self, index: int = -1) -> dict[str, Any]:
        decoded: dict[str, Any] = json.loads(self.requests[index].content)
        return decoded


def wire_status(name: str, **changes: object) -> dict[str, object]:
    return {
        "pathSuffix": name,
        "type": "FILE",
        "length": 7,
        "owner": "alice",
        "group": "users",
        "permission": "640",
        "accessTime": 1,
        "modificationTime": 2,
        "blockSize": 65536,
        "replication": 3,
        "fileId": 99,
    } | changes


def page(names: list[str], remaining: int) -> dict[str, object]:
    statuses = {"FileStatuses": {"FileStatus": [wire_status(name) for name in names]}}
    return {"DirectoryListing": {"partialListing": statuses, "remainingEntries": remaining}}


def test_a_status_is_read_with_its_octal_permission_and_its_full_path() -> None:
    recorder = Recorder({"FileStatus": wire_status("", permission="1777", type="DIRECTORY")})
    status = recorder.api.status("/a/b")
    assert (status.path, status.name, status.is_directory, status.permission) == ("/a/b", "b", True, 0o1777)
    assert recorder.query() == {"op": "GETFILESTATUS", "user.name": "alice"}


@pytest.mark.parametrize("name", ["50% off?", "a#b", "x&y=z+1", "ä ö", "semi;colon", "a%2Fb"])
def test_names_with_signs_that_mean_something_in_a_url_arrive_as_they_are(name: str) -> None:
    recorder = Recorder({"FileStatus": wire_status("")}, {"boolean": True})
    recorder.api.status(f"/dir/{name}")
    assert unquote(recorder.requests[0].url.raw_path.partition(b"?")[0].decode()) == f"/webhdfs/v1/dir/{name}"
    recorder.api.rename("/a", f"/dir/{name}")
    assert recorder.query()["destination"] == f"/dir/{name}"


def test_a_directory_is_listed_page_after_page_from_the_last_name_on() -> None:
    recorder = Recorder(page(["a", "b"], 3), page(["c", "d"], 1), page(["e"], 0))
    listed = [entry.path for found in recorder.api.pages("/dir") for entry in found.entries]
    assert listed == ["/dir/a", "/dir/b", "/dir/c", "/dir/d", "/dir/e"]
    assert [recorder.query(i)["startafter"] for i in range(3)] == ["", "b", "d"]


def test_a_listing_ends_even_if_the_coordinator_promises_entries_that_never_come() -> None:
    recorder = Recorder(page(["a"], 2), page([], 2))
    assert len(list(recorder.api.pages("/dir"))) == 2


def test_the_root_and_files_list_with_sound_paths() -> None:
    assert next(Recorder(page(["a"], 0)).api.pages("/")).entries[0].path == "/a"
    assert next(Recorder(page([""], 0)).api.pages("/dir/file")).entries[0].path == "/dir/file"


DONE = {"boolean": True}
#: Each with what the coordinator answers.
CHANGES: list[tuple[Callable[[CoordinatorApi], object], Reply]] = [
    (lambda api: api.mkdirs("/a"), DONE),
    (lambda api: api.rename("/a", "/b"), DONE),
    (lambda api: api.delete("/a"), DONE),
    (lambda api: api.set_permission("/a", 0o700), DONE),
    (lambda api: api.set_owner("/a", "bob", None), DONE),
    (lambda api: api.truncate("/a", 0), DONE),
    (lambda api: api.concat("/a", ["/b"]), DONE),
    (lambda api: api.allow_snapshots("/a"), DONE),
    (lambda api: api.disallow_snapshots("/a"), DONE),
    (lambda api: api.create_snapshot("/a", None), {"Path": "/a/.snapshot/s"}),
    (lambda api: api.rename_snapshot("/a", "s", "t"), DONE),
    (lambda api: api.delete_snapshot("/a", "s"), DONE),
    (lambda api: api.restore_snapshot("/a", "s"), DONE),
]


@pytest.mark.parametrize(("change", "done"), CHANGES)
def test_a_change_whose_answer_was_lost_is_asked_again_under_its_id_and_another_one_has_another(
    change: Callable[[CoordinatorApi], object], done: Reply
) -> None:
    recorder = Recorder(httpx.ReadError("lost"), done, done)
    change(recorder.api)
    change(recorder.api)
    first, again, another = (
        recorder.body(n)["request_id"] if recorder.requests[n].content else recorder.query(n)["requestid"]
        for n in range(3)
    )
    assert first == again != another


def test_a_rename_never_replaces_unless_told_to() -> None:
    recorder = Recorder({"boolean": True}, {"boolean": True})
    recorder.api.rename("/a", "/b")
    assert recorder.query()["renameoptions"] == "NONE"
    recorder.api.rename("/a", "/b", overwrite=True)
    assert recorder.query()["renameoptions"] == "OVERWRITE"


def test_answers_that_make_no_sense_are_faults_and_not_values() -> None:
    with pytest.raises(PeerRefused, match="does not answer like a peacefs coordinator"):
        Recorder({"FileStatus": {"length": "seven"}}).api.status("/a")


def test_user_name_is_hadoops_variable_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "spark")
    assert current_user() == "spark"
    monkeypatch.delenv("HADOOP_USER_NAME")
    monkeypatch.setenv("LOGNAME", "bob")
    assert current_user() == "bob"
