"""The coordinator's decisions about replicas: copy, drop, or leave alone."""

from __future__ import annotations

import pytest
from support.play import USAGE, Play, record, registration

from peacefs.coordinator.cluster.repair import ReplicaCopy
from peacefs.coordinator.limits import freed_chunks_kept_s
from peacefs.protocol.errors import NoDatanodes
from peacefs.protocol.ids import first_of_epoch
from peacefs.protocol.messages import (
    DeleteChunks,
    Heartbeat,
    Receipt,
    Replica,
    ReportAgain,
    ReportChunks,
    Usage,
    VerifyChunks,
    WrittenChunk,
)


def copies(play: Play, seconds: float) -> list[ReplicaCopy]:
    return [copy for ticked in play.ticks(seconds) for copy in ticked.copies]


def deletions(play: Play, seconds: float) -> list[tuple[str, int]]:
    return [
        (order.node, replica.chunk)
        for ticked in play.ticks(seconds)
        for order in ticked.orders
        if isinstance(order.message, DeleteChunks)
        for replica in order.message.replicas
    ]


class TestRepair:
    def test_a_dead_datanode_s_chunks_are_copied_from_who_still_has_them(self, play: Play) -> None:
        play.join("dn-1", "dn-2", "dn-3", "dn-4")
        play.open_for_business()
        play.publish([record(7, hint=("dn-1", "dn-2", "dn-3"))])
        assert copies(play, 5.0) == []
        play.beating.remove("dn-3")
        (copy,) = copies(play, 11.0)
        assert copy.chunk == 7
        assert copy.source in {"dn-1", "dn-2"}
        assert copy.target == "dn-4"
        assert play.cluster.replicas_lost_total == 1

    def test_a_receipt_of_a_datanode_that_died_before_the_completion_counts_for_nothing(self, play: Play) -> None:
        play.join("dn-1", "dn-2", "dn-3")
        play.open_for_business()
        play.beating.remove("dn-2")
        play.let_pass(11.0)
        play.publish([record(7, replication=2, hint=("dn-1", "dn-2"))])
        assert [node.id for node in play.cluster.locations(7)] == ["dn-1"]
        assert [copy.target for copy in copies(play, 1.0)] == ["dn-3"]

    def test_a_copy_that_is_acknowledged_is_not_ordered_again(self, play: Play) -> None:
        play.join("dn-1", "dn-2", "dn-3")
        play.open_for_business()
        play.publish([record(7, hint=("dn-1", "dn-2"))])
        (copy,) = copies(play, 1.0)
        play.cluster.copy_finished(7, copied=True)
        assert copies(play, 5.0) == []
        assert {node.id for node in play.cluster.locations(7)} == {"dn-1", "dn-2", copy.target}
        assert play.cluster.repair.repaired_total == 1

    def test_a_copy_that_fails_is_tried_at_another_target(self, play: Play) -> None:
        play.join("dn-1", "dn-2", "dn-3", "dn-4")
        play.open_for_business()
        play.publish([record(7, replication=2, hint=("dn-1",))])
        (first,) = copies(play, 0.5)
        play.cluster.copy_finished(7, copied=False)
        (second,) = copies(play, 0.5)
        assert second.target != first.target

    def test_an_answer_that_never_comes_does_not_end_the_repair(self, play: Play) -> None:
        play.join("dn-1", "dn-2")
        play.open_for_business()
        play.publish([record(7, replication=2, hint=("dn-1",))])
        assert len(copies(play, 1.0)) == 1
        assert copies(play, 60.0) == []
        assert copies(play, 62.0) != []

    def test_the_chunk_with_the_fewest_replicas_comes_first(self, play: Play) -> None:
        play.join("dn-1", "dn-2", "dn-3", "dn-4")
        play.open_for_business()
        play.publish([record(1, hint=("dn-1", "dn-2")), record(2, hint=("dn-1",))])
        planned = copies(play, 0.5)
        assert planned[0].chunk == 2

    def test_a_node_takes_part_in_a_few_copies_at_a_time(self, play: Play) -> None:
        play.join("dn-1", "dn-2")
        play.open_for_business()
        play.publish([record(chunk, replication=2, hint=("dn-1",)) for chunk in range(1, 50)])
        assert len(copies(play, 5.0)) == 2

    def test_with_nowhere_to_copy_to_nothing_is_ordered_until_a_node_comes(self, play: Play) -> None:
        play.join("dn-1")
        play.open_for_business()
        play.publish([record(7, hint=("dn-1",))])
        assert copies(play, 5.0) == []
        play.join("dn-2")
        assert [copy.target for copy in copies(play, 1.0)] == ["dn-2"]


class TestCorruption:
    def test_only_the_datanode_s_own_word_condemns_a_replica(self, play: Play) -> None:
        play.join("dn-1", "dn-2", "dn-3")
        play.open_for_business()
        play.publish([record(7, hint=("dn-1", "dn-2", "dn-3"))])
        (order,) = play.cluster.suspect_replica("dn-2", Replica(7, 1, 1000))
        assert (order.node, type(order.message)) == ("dn-2", VerifyChunks)
        assert len(play.cluster.locations(7)) == 3

    def test_a_corrupt_replica_is_not_read_and_is_dropped_while_a_good_one_exists(self, play: Play) -> None:
        play.join("dn-1", "dn-2", "dn-3")
        play.open_for_business()
        play.publish([record(7, hint=("dn-1", "dn-2", "dn-3"))])
        play.cluster.heartbeat(play.now_s, "dn-2", Heartbeat(USAGE, corrupt=[Replica(7, 1, 1000)]))
        assert "dn-2" not in {node.id for node in play.cluster.locations(7)}
        assert deletions(play, 1.0) == [("dn-2", 7)]

    def test_no_copy_is_sent_to_where_a_deletion_is_still_under_way(self, play: Play) -> None:
        play.join("dn-1", "dn-2")
        play.open_for_business()
        play.publish([record(7, replication=2, hint=("dn-1", "dn-2"))])
        play.cluster.heartbeat(play.now_s, "dn-2", Heartbeat(USAGE, corrupt=[Replica(7, 1, 1000)]))
        assert copies(play, 5.0) == []
        play.cluster.heartbeat(play.now_s, "dn-2", Heartbeat(USAGE, removed=[Replica(7, 1, 1000)]))
        assert [copy.target for copy in copies(play, 1.0)] == ["dn-2"]

    def test_the_last_replica_is_kept_however_corrupt(self, play: Play) -> None:
        play.join("dn-1")
        play.open_for_business()
        play.publish([record(7, hint=("dn-1",))])
        play.cluster.heartbeat(play.now_s, "dn-1", Heartbeat(USAGE, corrupt=[Replica(7, 1, 1000)]))
        assert deletions(play, 20.0) == []
        assert play.cluster.chunks.missing == {7}

    def test_a_corrupt_replica_goes_once_a_good_one_has_come_and_not_before(self, play: Play) -> None:
        play.join("dn-1")
        play.open_for_business()
        play.cluster.published([record(7, hint=("dn-1",))])
        play.cluster.heartbeat(play.now_s, "dn-1", Heartbeat(USAGE, corrupt=[Replica(7, 1, 1000)]))
        play.join("dn-2")
        assert deletions(play, 10.0) == []
        play.cluster.heartbeat(play.now_s, "dn-2", Heartbeat(USAGE, added=[Replica(7, 1, 1000)]))
        assert deletions(play, 1.0) == [("dn-1", 7)]


class TestGarbage:
    @pytest.mark.evidence("return-is-harmless")
    def test_a_stale_replica_is_dropped_when_it_is_reported(self, play: Play) -> None:
        play.join("dn-1", "dn-2")
        play.open_for_business()
        play.publish([record(7, hint=("dn-1",), version=5)])
        (order,) = play.cluster.report(play.now_s, "dn-2", ReportChunks([Replica(7, 4, 1000)], last=True))
        assert order.message == DeleteChunks([Replica(7, 4, 1000)])

    @pytest.mark.evidence("return-is-harmless")
    def test_a_replica_of_another_length_is_dropped_and_never_counts(self, play: Play) -> None:
        play.join("dn-1", "dn-2")
        play.open_for_business()
        play.publish([record(7, hint=("dn-1",), version=5)])
        (order,) = play.cluster.report(play.now_s, "dn-2", ReportChunks([Replica(7, 5, 999)], last=True))
        assert order.message == DeleteChunks([Replica(7, 5, 999)])
        state = play.cluster.chunks.get(7)
        assert state is not None
        assert "dn-2" not in state.holders

    def test_an_unknown_chunk_above_the_floor_may_be_a_write_under_way(self, play: Play) -> None:
        play.floor = first_of_epoch(3)
        young = first_of_epoch(3) + 5
        play.join("dn-1", holding=(Replica(young, 1, 10),))
        play.open_for_business()
        assert deletions(play, 30.0) == []
        play.publish([record(young, hint=("dn-1",))])
        assert [node.id for node in play.cluster.locations(young)] == ["dn-1"]

    def test_an_unknown_chunk_below_the_floor_is_garbage(self, play: Play) -> None:
        play.floor = first_of_epoch(3)
        old = first_of_epoch(2) + 5
        play.join("dn-1", holding=(Replica(old, 1, 10),))
        play.open_for_business()
        assert deletions(play, 5.0) == [("dn-1", old)]

    def test_freed_chunks_stay_for_their_readers_and_are_dropped_then_by_all_who_hold_them(
        self, play: Play
    ) -> None:
        play.join("dn-1", "dn-2", "dn-3")
        play.open_for_business()
        play.publish([record(7, hint=("dn-1", "dn-2"))])
        play.cluster.heartbeat(play.now_s, "dn-2", Heartbeat(USAGE, corrupt=[Replica(7, 1, 1000)]))
        assert play.cluster.freed(play.now_s, [record(7)]) == []
        assert copies(play, freed_chunks_kept_s - 1.0) == [], "nobody repairs them"
        assert [node.id for node in play.cluster.locations(7)] == ["dn-1"]
        # A running copy ends; a newly reported replica is not garbage yet.
        for node in ("dn-1", "dn-3"):
            play.cluster.heartbeat(play.now_s, node, Heartbeat(USAGE, added=[Replica(7, 1, 1000)]))
        play.floor = first_of_epoch(3)
        assert deletions(play, 0.5) == []
        assert sorted(node.id for node in play.cluster.locations(7)) == ["dn-1", "dn-3"]
        assert sorted(deletions(play, 1.0)) == [("dn-1", 7), ("dn-2", 7), ("dn-3", 7)]
        assert play.cluster.locations(7) == []
        assert deletions(play, 30.0) == []

    def test_freed_chunks_that_are_too_many_are_dropped_early_those_freed_first(
        self, play: Play, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("peacefs.coordinator.cluster.transient_chunks.freed_chunks_kept_max", 2)
        play.join("dn-1")
        play.open_for_business()
        play.publish([record(chunk, hint=("dn-1",)) for chunk in (7, 8, 9)])
        (order,) = play.cluster.freed(play.now_s, [record(7), record(8), record(9)])
        assert order.message == DeleteChunks([Replica(7, 1, 1000)])
        assert deletions(play, freed_chunks_kept_s) == [("dn-1", 8), ("dn-1", 9)]

    def test_chunk_that_is_being_published_is_found_at_those_who_gave_receipts(self, play: Play) -> None:
        """Its name may be visible before the map knows it; of a repeated completion, either may be refused."""
        play.join("dn-1", "dn-2")
        play.open_for_business()
        written = [WrittenChunk(7, 1, 1000, 0, [Receipt("dn-1", b""), Receipt("dn-2", b"")])]

        def holders() -> list[str]:
            return sorted(node.id for node in play.cluster.locations(7))

        with play.cluster.transient.publishing(written):
            with play.cluster.transient.publishing(written):
                assert holders() == ["dn-1", "dn-2"]
            assert holders() == ["dn-1", "dn-2"]
            assert len(play.cluster.chunks) == 0
        assert holders() == []

    def test_surplus_replica_goes_and_no_rack_is_left_out(self, play: Play) -> None:
        play.join("dn-1", "dn-2", rack="/rack-1")
        play.join("dn-3", rack="/rack-2")
        play.open_for_business()
        play.publish([record(7, replication=2, hint=("dn-1", "dn-2", "dn-3"))])
        ((node, chunk),) = deletions(play, 3.0)
        assert chunk == 7
        assert node in {"dn-1", "dn-2"}

    @pytest.mark.parametrize("alone", ["dn-1", "dn-2", "dn-3"])
    def test_the_only_replica_of_a_rack_stays_however_full_its_datanode_is(self, play: Play, alone: str) -> None:
        for node in ("dn-1", "dn-2", "dn-3"):
            play.join(node, rack="/rack-2" if node == alone else "/rack-1")
        play.beating.clear()
        play.open_for_business()
        full = Usage(capacity_bytes=1 << 40, used_bytes=1 << 40, available_bytes=1)
        play.cluster.heartbeat(play.now_s, alone, Heartbeat(full))
        play.cluster.published([record(7, replication=2, hint=("dn-1", "dn-2", "dn-3"))])
        ((node, _chunk),) = deletions(play, 1.0)
        assert node != alone

    def test_nothing_is_trimmed_while_a_holder_is_suspect(self, play: Play) -> None:
        play.join("dn-1", "dn-2", "dn-3")
        play.open_for_business()
        play.beating.remove("dn-3")
        play.let_pass(4.0)
        play.publish([record(7, replication=2, hint=("dn-1", "dn-2", "dn-3"))])
        assert deletions(play, 4.0) == []


class TestStart:
    def test_nothing_is_judged_before_the_reports_are_in(self, play: Play) -> None:
        play.cluster.load([record(chunk, hint=("dn-1", "dn-2")) for chunk in range(1, 11)])
        play.cluster.loaded()
        play.join("dn-1")
        assert not play.cluster.ready(play.now_s)
        assert copies(play, 10.0) == []
        play.join("dn-2", holding=tuple(Replica(chunk, 1, 1000) for chunk in range(1, 11)))
        assert play.cluster.ready(play.now_s)

    def test_known_datanodes_are_waited_for_but_not_for_ever(self, play: Play) -> None:
        play.cluster.load([record(1, hint=("dn-1", "dn-2"))])
        play.cluster.loaded()
        play.join("dn-1", holding=(Replica(1, 1, 1000),))
        assert not play.cluster.ready(play.now_s)
        play.let_pass(6.0)
        assert play.cluster.ready(play.now_s)

    def test_with_data_missing_the_wait_ends_by_its_deadline(self, play: Play) -> None:
        play.cluster.load([record(1, hint=("dn-9",))])
        play.cluster.loaded()
        play.join("dn-1")
        play.let_pass(44.0)
        assert not play.cluster.ready(play.now_s)
        play.let_pass(2.0)
        assert play.cluster.ready(play.now_s)

    def test_a_datanode_that_the_coordinator_forgot_reports_again(self, play: Play) -> None:
        (order,) = play.cluster.heartbeat(play.now_s, "dn-1", Heartbeat(USAGE))
        assert order.message == ReportAgain()


class TestPlacement:
    def test_no_node_gets_a_chunk_that_is_suspect_or_excluded(self, play: Play) -> None:
        play.join("dn-1", "dn-2", "dn-3")
        play.open_for_business()
        play.beating.remove("dn-1")
        play.let_pass(4.0)
        nodes = play.cluster.place(play.now_s, 1, None, 3, frozenset({"dn-2"}), 900.0)
        assert [node.id for node in nodes] == ["dn-3"]

    def test_a_full_datanode_gets_none(self, play: Play) -> None:
        play.join("dn-1", "dn-2")
        play.open_for_business()
        play.cluster.heartbeat(play.now_s, "dn-1", Heartbeat(USAGE.__class__(1 << 40, 1 << 40, 1000)))
        nodes = play.cluster.place(play.now_s, 1, None, 2, frozenset(), 900.0)
        assert [node.id for node in nodes] == ["dn-2"]

    def test_with_nobody_to_take_it_a_write_is_refused_with_the_reason(self, play: Play) -> None:
        play.join("dn-1")
        play.open_for_business()
        with pytest.raises(NoDatanodes, match="1 alive, 1 excluded"):
            play.cluster.place(play.now_s, 1, None, 3, frozenset({"dn-1"}), 900.0)

    def test_a_reader_is_sent_to_its_own_host_first_then_to_its_rack(self, play: Play) -> None:
        for node, rack in (("dn-1", "/a"), ("dn-2", "/b"), ("dn-3", "/a")):
            play.cluster.register(play.now_s, registration(node, rack))
        play.publish([record(7, hint=("dn-1", "dn-2", "dn-3"))])
        found = play.cluster.locations(7, near_host="dn-3.example")
        assert [node.id for node in found] == ["dn-3", "dn-1", "dn-2"]
