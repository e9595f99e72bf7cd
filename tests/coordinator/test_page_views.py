"""Views of the web page: progress of repair, why and how long a write set waits, and the last grants."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from support.play import Play, record
from support.scheduled import Scheduled

from peacefs.coordinator.api.rest.network import described_network
from peacefs.coordinator.api.views.cluster import RepairProgress
from peacefs.coordinator.api.views.peace import expected_end_s, why_it_waits
from peacefs.coordinator.scheduling.grant_history import GrantHistory
from peacefs.protocol.values.schedule import QueuedSet, Schedule
from peacefs.topology.network_view import NetworkView


def test_repair_progress_counts_what_is_done_of_this_repair_and_when_it_ends() -> None:
    progress = RepairProgress()
    assert progress.looked(0.0, 0, 7) == (0, 0.0, None)
    assert progress.looked(10.0, 20, 7) == (0, 0.0, None)
    assert progress.looked(14.0, 12, 15) == (8, 2.0, 6.0)
    # The finished repair stays visible until the next one begins.
    assert progress.looked(20.0, 0, 27)[::2] == (20, None)
    assert progress.looked(500.0, 0, 27) == (20, 0.0, None)
    assert progress.looked(501.0, 5, 27)[0] == 0


def test_repair_progress_goes_by_the_last_half_minute() -> None:
    progress = RepairProgress()
    for second in range(100):
        progress.looked(float(second), 1000 - second, second)
    _done, rate, _left = progress.looked(100.0, 900, 100)
    for second in range(101, 160):
        _done, rate, _left = progress.looked(float(second), 900, 100)
    assert rate == 0.0


def test_repair_copies_are_told_with_their_beginning(play: Play) -> None:
    play.join("n1", "n2", "n3", "n4")
    play.open_for_business()
    play.publish([record(1, hint=("n1", "n2"))])
    (copy,) = [copy for ticked in play.let_pass(1) for copy in ticked.copies]
    ((shown, began_s),) = play.cluster.repair.copies()
    assert shown == copy
    assert play.now_s - 1 <= began_s <= play.now_s
    play.copied(copy)
    assert play.cluster.repair.copies() == []


def queued(**changes: object) -> QueuedSet:
    of = QueuedSet(
        write_set="w",
        link=None,
        writer="n1",
        host=None,
        root=None,
        replication=2,
        chunks_waiting=5,
        bytes_waiting=5 << 26,
        chunks_in_flight=0,
        age_s=3.0,
        expected_start_s=2.0,
    )
    return replace(of, **changes)  # type: ignore[arg-type]


@pytest.fixture
def network(play: Play) -> NetworkView:
    play.join("n1", "n2", "n3")
    play.open_for_business()
    return described_network(play.cluster)


def test_write_set_waits_for_a_reason_that_is_told(network: NetworkView) -> None:
    assert "no datanode" in why_it_waits(0, queued(), replace(network, servers=[]), 0)
    assert "needs 9 datanodes at once, and there are 3" in why_it_waits(0, queued(replication=9), network, 3)
    assert why_it_waits(0, queued(), network, 1) == "1 of 3 datanodes have a slot free, and a chunk of it needs 2"
    assert "4 of its chunks are being written" in why_it_waits(0, queued(chunks_in_flight=4), network, 2)
    assert "1 set asked before it" in why_it_waits(1, queued(), network, 2)
    assert "links between its writer" in why_it_waits(0, queued(), network, 2)


def test_write_set_is_expected_to_end_at_the_pace_of_what_is_in_flight() -> None:
    schedule = msgspec.convert(
        dict.fromkeys(Schedule.__dataclass_fields__, 0)
        | {
            "policy": "express",
            "waiting_times": {"median_s": 0, "p95_s": 0, "longest_s": 0, "chunk_s": 4.0},
            "recovery": dict.fromkeys(
                ("readers", "chunks_read", "chunks_waiting", "longest_wait_s", "leaves_total"), 0
            )
            | {"at_datanode": {}},
            "queue": [],
            "grants": [],
            "grants_in_flight": 2,
        },
        Schedule,
    )
    # It starts in 2 s. Its first chunk takes 4 s, and the other four go two at a time.
    assert expected_end_s(queued(), schedule) == 2.0 + 4.0 + 2 * 4.0
    assert expected_end_s(queued(chunks_waiting=1), schedule) == 6.0


def test_grants_that_ended_are_remembered_for_some_minutes() -> None:
    scheduled = Scheduled()
    written, dropped = scheduled.state("w", 2)
    scheduled.now_s += 3.0
    scheduled.ends(written)
    scheduled.ends(dropped, completed=False)
    first, second = scheduled.scheduling.history.since(0.0)
    assert (first.write_set, first.nodes, first.length) == ("http w", written.nodes, written.chunk_bytes)
    assert first.ended_s - first.granted_s == 3.0
    assert (second.number, second.length) == (dropped.number, 0)
    assert scheduled.scheduling.history.since(scheduled.now_s + 1.0) == []


def test_grant_history_is_bounded_in_time_and_number() -> None:
    (grant,) = Scheduled().state("w", 1)
    history = GrantHistory(kept_s=10.0, count_max=3)
    for second in range(5):
        history.ended(float(second), grant, 1)
    assert [each.ended_s for each in history.since(0.0)] == [2.0, 3.0, 4.0]
    history.ended(13.5, grant, 1)
    assert [each.ended_s for each in history.since(0.0)] == [4.0, 13.5]
