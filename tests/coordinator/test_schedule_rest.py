"""`POST /v1/files/schedule`, `GET /v1/schedule`: invalid requests are refused with the reason and not queued."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast

import httpx
import pytest
from support.immediate_commit import durable_at_once
from support.no_links import NoLinks
from support.play import Play
from support.status_sources import status_sources

from peacefs.coordinator.api.rest.app import build_rest, schedule_body_bytes_max
from peacefs.coordinator.limits import write_set_chunks_max
from peacefs.coordinator.metadata.sqlite.store import store_in_memory
from peacefs.coordinator.namespace.permissions import Callers
from peacefs.coordinator.operations.context import OperationContext
from peacefs.coordinator.operations.files import Files
from peacefs.protocol.limits import MIB
from peacefs.protocol.new_file import NewFile
from peacefs.protocol.tokens import FileWrite, Signer

SIGNER = Signer(b"a secret of the tests")


def token(replication: int = 3, expires_s: float = 1e12, path: str = "/file", write_class: str = "") -> str:
    file = NewFile(
        path=path,
        user="me",
        replication=replication,
        block_bytes=4 * MIB,
        request_id="r",
        write_class=write_class,
    )
    return SIGNER.sign(FileWrite(expires_s, file))


class Asked:
    """A coordinator's REST API with a scheduler; each datanode receives one chunk at a time."""

    def __init__(self, play: Play) -> None:
        core = play.core
        self.play = play
        self.scheduling = core.scheduling
        metadata = store_in_memory()
        context = OperationContext(
            metadata.reader(),
            cast(Callable[..., Any], None),
            core,
            SIGNER,
            NoLinks(),
            durable_at_once(metadata),
            callers=Callers(),
            monotonic=lambda: play.now_s,
        )
        files = Files(context)
        self.schedule = files.schedule
        app = build_rest(files, status_sources(play))
        self._transport = httpx.ASGITransport(app, raise_app_exceptions=False)

    def ask(self, method: str, path: str, content: str = "") -> httpx.Response:
        async def ask() -> httpx.Response:
            async with httpx.AsyncClient(transport=self._transport, base_url="http://here") as client:
                return await client.request(
                    method, path, content=content, headers={"Content-Type": "application/json"}
                )

        return asyncio.run(ask())

    def state(self, chunks: list[list[int]], *, name: str = "w/1", **changes: Any) -> httpx.Response:
        body = {"type": "StateWriteSet", "token": token(), "write_set": name, "chunks": chunks} | changes
        return self.ask("POST", "/v1/files/schedule", json.dumps(body))

    def shown(self) -> Any:
        return self.ask("GET", "/v1/schedule").json()


@pytest.fixture
def asked() -> Asked:
    play = Play(streams_per_node=1)
    play.join("n1", "n2")
    play.open_for_business()
    return Asked(play)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"chunks": [[n, 1] for n in range(write_set_chunks_max + 1)]}, "10001 chunks are over the limit"),
        ({"chunks": [[0, 0]]}, "a chunk of 0 bytes is out of range"),
        ({"chunks": [[0, 65 * MIB]]}, "a chunk of 68157440 bytes is out of range"),
        ({"chunks": [[0, MIB]], "token": token(replication=0)}, "replication 0 is not from 1"),
        ({"chunks": [[0, MIB]], "exclude": ["n1", "n2"]}, "2 in service have room for one, 2 excluded"),
        ({"chunks": [[0, MIB]], "token": "forged"}, "token"),
        ({"chunks": [[0, MIB]], "token": token(expires_s=0.0)}, "expired"),
        ({"chunks": "many"}, "chunks"),
    ],
)  # fmt: skip
def test_set_that_can_never_be_granted_is_refused_with_the_reason(
    asked: Asked, changes: dict[str, Any], said: str
) -> None:
    answer = asked.state(**changes)
    assert answer.status_code in (400, 403)
    assert said in answer.json()["RemoteException"]["message"]
    assert (asked.shown()["sets_waiting"], asked.shown()["grants_in_flight"]) == (0, 0)


def test_a_million_chunks_are_refused_by_their_size_alone(asked: Asked) -> None:
    chunks = ",".join(["[7,1048576]"] * 1_000_000)
    answer = asked.ask("POST", "/v1/files/schedule", f'{{"type": "StateWriteSet", "chunks": [{chunks}]}}')
    assert answer.status_code in (400, 413)
    assert str(schedule_body_bytes_max) in answer.text
    assert asked.shown()["chunks_waiting"] == 0


def test_a_body_that_is_nested_without_end_is_refused_as_any_that_makes_no_sense(asked: Asked) -> None:
    answer = asked.ask("POST", "/v1/files/schedule", '{"more":' * 5000)
    assert answer.status_code == 400
    assert "the body is no StateWriteSet" in answer.json()["RemoteException"]["message"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/files/open", r'{"path": "/f", "user": "\ud800"}'),
        ("/v1/files/extend", r'{"path": "/f", "user": "alice", "holder": "\ud800"}'),
        ("/v1/files/concat", r'{"target": "/f", "sources": ["/g", "\ud800"], "user": "alice"}'),
        ("/v1/copies", r'{"source": "/f", "target": "/g", "user": "alice", "request_id": "\ud800"}'),
    ],
)
def test_text_that_is_no_unicode_is_refused(asked: Asked, path: str, body: str) -> None:
    answer = asked.ask("POST", path, body)
    assert answer.status_code == 400
    assert answer.json()["RemoteException"]["message"].endswith("text that is no Unicode")


def test_no_chunks_at_all_are_nothing_to_wait_for(asked: Asked) -> None:
    answer = asked.state([]).json()
    assert (answer["grants"], answer["waiting"]) == ([], 0)
    assert asked.shown()["queue"] == []


def test_more_replicas_than_nodes_are_as_many_as_there_are_and_a_strangers_set_is_served_as_any(
    asked: Asked,
) -> None:
    assert len(asked.state([[0, MIB]]).json()["grants"]) == 1
    (shown,) = asked.shown()["grants"]
    assert (shown["writer"], sorted(shown["pipeline"])) == (None, ["n1", "n2"])


def test_completions_that_come_twice_or_from_a_stranger_give_nothing_back_twice(asked: Asked) -> None:
    asked.state([[0, MIB]])
    asked.state([[0, MIB]], name="w/2")
    (grant,) = asked.scheduling.grants
    for node in ("nobody", grant.nodes[0], grant.nodes[0]):
        asked.scheduling.ended(1.0, node, grant.chunk, completed=True, length=MIB)
    shown = asked.shown()
    assert (shown["grants_in_flight"], shown["chunks_waiting"]) == (1, 0)
    asked.scheduling.ended(2.0, grant.nodes[0], grant.chunk, completed=True, length=MIB)
    assert asked.shown()["grants_in_flight"] == 1


def test_recurrences_are_shown_with_the_periods_by_which_files_were_written(asked: Asked) -> None:
    for number in range(8):
        asked.play.now_s = 1000.0 + 10 * number
        for name, size in (("offsets", 100), ("commits", 28)):
            asked.schedule.created(NewFile(path=f"/q/{name}/{number}", user="me"), size)
    answer = asked.ask("GET", "/v1/schedule/recurrences").json()
    assert answer["watched"] == 1
    (shown,) = answer["recurrences"]
    assert shown["root"] == "/q" and shown["write_class"] == "blocking" and shown["occurrences"] == 8
    assert shown["period_s"] == pytest.approx(10.0) and shown["next_in_s"] == pytest.approx(10.0)
    assert shown["bytes"] == shown["bytes_max"] == 128


def test_the_class_of_a_set_is_that_of_its_path_or_its_writers_word(asked: Asked) -> None:
    asked.state([[0, 4 * MIB]], name="w/plain")
    asked.state([[0, 4 * MIB]], name="w/delta", token=token(path="/q/state/0/1/.5.delta.tmp"))
    asked.state([[0, 4 * MIB]], name="w/stated", token=token(write_class="due"))
    shown = asked.shown()
    classes = {each["write_set"]: each["write_class"] for each in (*shown["queue"], *shown["grants"])}
    assert classes == {"http w/plain": "bulk", "http w/delta": "blocking", "http w/stated": "due"}
