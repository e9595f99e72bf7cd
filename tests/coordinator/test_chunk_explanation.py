"""The explanation of a chunk: its replicas' states, their causes, and pending actions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from support.immediate_commit import durable_at_once
from support.no_links import NoLinks
from support.play import USAGE, Play, record, registration

from peacefs.coordinator.cluster.explain import Explainer
from peacefs.coordinator.limits import freed_chunks_kept_s, unconfirmed_replica_kept_s
from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.metadata.model import Mode
from peacefs.coordinator.metadata.sqlite.store import store_in_memory
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.copy import CopyResult, CopyToMake, begin_copy
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.coordinator.namespace.permissions import Principal
from peacefs.coordinator.operations.chunk_explanation import ChunkExplanations, chunk_files_shown_max
from peacefs.coordinator.operations.context import OperationContext
from peacefs.protocol.errors import BadRequest, FileNotFound
from peacefs.protocol.ids import Numbering, show
from peacefs.protocol.messages import Heartbeat, Receipt, Replica, WrittenChunk
from peacefs.protocol.new_file import NewFile
from peacefs.protocol.tokens import Signer
from peacefs.protocol.values.chunk_explanation import ChunkExplanation, ChunkStanding, PendingKind
from peacefs.protocol.values.fsck_findings import Finding

CHUNK = 7
FILE = record(CHUNK, replication=2, hint=("dn-1", "dn-2"))
HELD = Replica(CHUNK, 1, 1000)


def explain(play: Play, *, is_of_file: bool = True) -> ChunkExplanation:
    explained = Explainer(play.cluster, play.now_s).explain(CHUNK, FILE if is_of_file else None)
    assert explained is not None
    return explained


def states(explained: ChunkExplanation) -> dict[str, str]:
    return {replica.node: replica.state for replica in explained.replicas}


def pending(explained: ChunkExplanation) -> list[PendingKind]:
    return [each.kind for each in explained.pending]


@pytest.fixture
def started(play: Play) -> Play:
    play.join("dn-1", rack="/1")
    play.join("dn-2", rack="/2")
    play.join("dn-3", rack="/3")
    play.open_for_business()
    return play


def test_chunk_of_a_new_file_is_unconfirmed_until_its_datanodes_have_said_so(started: Play) -> None:
    started.cluster.published([FILE])
    explained = explain(started)
    assert explained.standing is ChunkStanding.REFERENCED and explained.findings == []
    assert states(explained) == {"dn-1": "unconfirmed", "dn-2": "unconfirmed"}
    assert pending(explained) == [PendingKind.CONFIRMATION] * 2
    started.now_s += 1.5
    started.cluster.heartbeat(started.now_s, "dn-1", Heartbeat(USAGE, added=[HELD]))
    explained = explain(started)
    assert states(explained) == {"dn-1": "live", "dn-2": "unconfirmed"}
    assert [replica.since_s for replica in explained.replicas] == [0.0, 1.5]
    assert [(event.node, event.event) for event in explained.history] == [
        ("dn-1", "attested"),
        ("dn-2", "attested"),
        ("dn-1", "reported"),
    ]


def test_chunk_whose_datanode_never_confirmed_it_is_repaired_and_says_why(started: Play) -> None:
    started.cluster.published([FILE])
    started.cluster.heartbeat(started.now_s, "dn-1", Heartbeat(USAGE, added=[HELD]))
    copies = [copy for ticked in started.let_pass(unconfirmed_replica_kept_s + 1.0) for copy in ticked.copies]
    explained = explain(started)
    assert states(explained) == {"dn-1": "live"} and explained.findings == [Finding.UNDER_REPLICATED]
    assert pending(explained) == [PendingKind.REPAIR, PendingKind.COPY]
    assert copies[0].target in explained.pending[1].text
    assert [event.event for event in explained.history][-2:] == ["overdue", "copy_ordered"]


def test_chunk_with_a_corrupt_replica_waits_for_proofs_until_that_is_deleted(started: Play) -> None:
    started.publish([FILE])
    started.cluster.heartbeat(started.now_s, "dn-2", Heartbeat(USAGE, corrupt=[HELD]))
    explained = explain(started)
    assert states(explained) == {"dn-1": "live", "dn-2": "corrupt"}
    assert pending(explained) == [PendingKind.REPAIR, PendingKind.PROOF]
    assert explained.findings == [Finding.UNDER_REPLICATED, Finding.CORRUPT]
    started.let_pass(2.0)
    explained = explain(started)
    assert states(explained)["dn-2"] == "deleting" and PendingKind.DELETION in pending(explained)
    started.cluster.heartbeat(started.now_s, "dn-2", Heartbeat(USAGE, removed=[HELD]))
    assert states(explain(started)).keys() == {"dn-1"}


def test_chunk_of_a_dead_datanode_names_its_death_as_the_cause(started: Play) -> None:
    started.publish([FILE])
    started.beating.discard("dn-2")
    started.let_pass(9.0)
    started.cluster.register(started.now_s, registration("dn-2", rack="/2"))
    explained = explain(started)
    assert states(explained) == {"dn-1": "live", "dn-2": "lost"}
    assert "died" in explained.replicas[1].because and explained.replicas[1].since_s == 0.0


def test_corrupt_replica_of_a_datanode_that_died_is_taken_out_of_the_lists_and_the_history_says_so(
    started: Play,
) -> None:
    started.contents = {"dn-1": None, "dn-2": None, "dn-3": None}  # Nobody proves its replicas.
    started.publish([FILE])
    started.cluster.heartbeat(started.now_s, "dn-2", Heartbeat(USAGE, corrupt=[HELD]))
    started.beating.discard("dn-2")
    started.let_pass(1.0)
    assert states(explain(started))["dn-2"] == "corrupt"
    started.let_pass(15.0)
    explained = explain(started)
    assert "dn-2" not in states(explained)
    assert ("dn-2", "swept") in [(event.node, event.event) for event in explained.history]


def test_chunk_of_a_datanode_in_maintenance_is_awaited(started: Play) -> None:
    started.publish([FILE])
    started.cluster.set_mode("dn-2", Mode.MAINTENANCE)
    started.beating.discard("dn-2")
    started.let_pass(15.0)
    explained = explain(started)
    assert states(explained) == {"dn-1": "live", "dn-2": "awaited"}
    assert PendingKind.RETURN in pending(explained)
    assert explained.replicas[1].datanode == "dead"


def test_chunk_of_a_deleted_file_is_kept_for_its_readers_and_then_released(started: Play) -> None:
    started.publish([FILE])
    started.cluster.freed(started.now_s, [FILE])
    explained = explain(started, is_of_file=False)
    assert explained.standing is ChunkStanding.FREED
    assert states(explained) == {"dn-1": "freed", "dn-2": "freed"}
    assert pending(explained) == [PendingKind.RELEASE]
    started.let_pass(freed_chunks_kept_s + 1.0)
    explained = explain(started, is_of_file=False)
    assert explained.standing is ChunkStanding.UNREFERENCED and states(explained) == {}
    assert explained.history[-1].event == "released"


def test_chunk_that_is_being_written_or_was_given_up_says_so(started: Play) -> None:
    started.cluster.place(started.now_s, CHUNK, None, 2, frozenset(), 60.0)
    started.cluster.heartbeat(started.now_s, "dn-1", Heartbeat(USAGE, added=[HELD]))
    explained = explain(started, is_of_file=False)
    assert explained.standing is ChunkStanding.BEING_WRITTEN and states(explained) == {"dn-1": "unreferenced"}
    assert pending(explained) == [PendingKind.WRITER]
    started.cluster.assignments.assign(CHUNK, "me")
    started.cluster.abandon([CHUNK], "me")
    explained = explain(started, is_of_file=False)
    assert explained.standing is ChunkStanding.ABANDONED
    assert states(explained) == {} and pending(explained) == []


def test_chunk_that_was_listed_at_registration_says_so_without_a_time(play: Play) -> None:
    play.join("dn-1", holding=(HELD,))
    play.cluster.load([record(CHUNK, replication=1, hint=("dn-1",))])
    play.open_for_business()
    play.join("dn-1", holding=(HELD,))
    (replica,) = explain(play).replicas
    assert (replica.state, replica.since_s) == ("live", None) and "registered" in replica.because


def test_chunk_that_nobody_knows_is_explained_by_nothing(started: Play) -> None:
    assert Explainer(started.cluster, started.now_s).explain(CHUNK, None) is None


# -- the files that refer to it ----------------------------------------------------------------------


class Names:
    """A namespace with a cluster."""

    def __init__(self, play: Play) -> None:
        self.metadata = store_in_memory()
        self.numbering = Numbering(self.metadata.begin_epoch())
        self.cluster = play.cluster
        self.pauses = 0
        self.explanations = ChunkExplanations(
            OperationContext(
                self.metadata.reader(),
                self.commit,
                play.core,
                Signer(b"secret"),
                NoLinks(),
                durable_at_once(self.metadata),
                monotonic=lambda: play.now_s,
                sleep=self._pause,
            )
        )

    async def commit(self, change: Callable[[Transaction], Any], /, *, in_any_case: bool = False) -> Any:
        return run_now(self.metadata, change)

    async def _pause(self, _seconds: float) -> None:
        self.pauses += 1

    def write(self, path: str) -> str:
        chunk = WrittenChunk(self.numbering.next(), 1, 10, 7, [Receipt("dn-1", b"")])
        file = NewFile(path=path, user="ann", replication=1, block_bytes=1 << 26, request_id=path)
        self.cluster.published(
            run_now(self.metadata, lambda tx: namespace.complete_file(tx, file, [chunk], 1)).added
        )
        return show(chunk.chunk)

    def copy(self, source: str, target: str) -> None:
        caller = Principal("ann", frozenset({"ann"}), is_superuser=True)
        wanted = CopyToMake(parse_path(source), parse_path(target), caller, False, "", 1)
        assert isinstance(run_now(self.metadata, lambda tx: begin_copy(tx, wanted)), CopyResult)

    def explain(self, chunk: str) -> ChunkExplanation:
        return asyncio.run(self.explanations.explain(chunk))


def test_chunk_names_the_file_that_refers_to_it_among_others(
    started: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peacefs.coordinator.operations.chunk_explanation.chunk_references_per_turn", 3)
    names = Names(started)
    chunks = {path: names.write(path) for path in (f"/d/{number}" for number in range(8))}
    for is_in_image in (False, True):
        if is_in_image:
            names.metadata.catch_up()
        names.pauses = 0
        for path, chunk in chunks.items():
            explained = names.explain(chunk)
            assert explained.files == [path] and not explained.more_files and explained.length == 10
        assert names.pauses == 3 * 0 + 3 * 1 + 2 * 2, "others get their turn after three files"


def test_chunk_that_many_files_share_names_some_of_them(started: Play) -> None:
    names = Names(started)
    chunk = names.write("/d/first")
    for number in range(chunk_files_shown_max):
        names.copy("/d/first", f"/d/copy-{number:02}")
    explained = names.explain(chunk)
    assert explained.files == [f"/d/copy-{number:02}" for number in range(chunk_files_shown_max)]
    assert explained.more_files


def test_chunk_of_a_deleted_file_names_none(started: Play) -> None:
    names = Names(started)
    chunk = names.write("/d/f")
    freed = run_now(names.metadata, lambda tx: namespace.delete(tx, parse_path("/d/f"), True, 1)).freed
    names.cluster.freed(started.now_s, freed)
    explained = names.explain(chunk)
    assert explained.files == [] and explained.standing is ChunkStanding.FREED


@pytest.mark.parametrize("text", ["", "7", "x-1", "1-", "01-1", "1-1-1", "1-zz", "9" * 100])
def test_chunk_id_that_is_none_is_refused(started: Play, text: str) -> None:
    with pytest.raises(BadRequest, match="is no chunk id"):
        Names(started).explain(text)


def test_chunk_id_that_nobody_knows_is_refused(started: Play) -> None:
    with pytest.raises(FileNotFound, match="nothing is known of chunk 1-2a"):
        Names(started).explain("1-2a")
