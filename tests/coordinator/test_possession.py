"""No replica is dropped for others that are only claimed: their datanodes must prove them first."""

from __future__ import annotations

from random import Random

import pytest
from support.play import Play, proof, record

from peacefs.coordinator.cluster.chunk_map import ChunkState
from peacefs.coordinator.cluster.possession import (
    Possession,
    Question,
    proof_backoff_max_s,
    proof_bytes_per_node_max,
    proof_timeout_s,
    proofs_per_node_max,
)
from peacefs.protocol.messages import (
    DeleteChunks,
    Done,
    Failure,
    Heartbeat,
    Replica,
    ReplicaProof,
    ReplicasProven,
)

REAL = ("dn-1", "dn-2", "dn-3")
LIARS = ("liar-1", "liar-2", "liar-3")


@pytest.fixture
def believed(play: Play) -> Play:
    """Return three datanodes with forty chunks, and three more that only claim to have them."""
    play.join(*REAL)
    play.join(*LIARS, rack="/rack-2")
    play.open_for_business()
    play.publish([record(chunk, hint=REAL) for chunk in range(40)])
    return play


def claim(play: Play, nodes: tuple[str, ...], version: int = 1) -> None:
    for node in nodes:
        added = [Replica(chunk, version, 1000) for chunk in range(40)]
        play.cluster.heartbeat(play.now_s, node, Heartbeat(usage_of(play, node), added=added))


def usage_of(play: Play, node: str):  # type: ignore[no-untyped-def]
    found = play.cluster.members.get(node)
    assert found is not None
    return found.usage


def dropped(play: Play, seconds: float) -> set[tuple[str, int]]:
    return {
        (order.node, replica.chunk)
        for ticked in play.ticks(seconds)
        for order in ticked.orders
        if isinstance(order.message, DeleteChunks)
        for replica in order.message.replicas
    }


class TestLiars:
    @pytest.mark.parametrize("count", [1, 2, 3])
    @pytest.mark.parametrize("says", ["each something else", "all the same", None])
    @pytest.mark.evidence("liars-lose-nothing")
    def test_liars_cause_no_real_replica_to_go(self, believed: Play, says: str | None, count: int) -> None:
        liars = LIARS[:count]
        believed.contents = {liar: liar if says == "each something else" else says for liar in liars}
        claim(believed, liars)
        assert not {(node, chunk) for node, chunk in dropped(believed, 1000.0) if node in REAL}

    def test_liars_in_the_majority_cause_what_they_say_they_hold_to_go_alone(self, believed: Play) -> None:
        """The coordinator cannot know which of them tells the truth."""
        believed.join("liar-4", rack="/rack-2")
        liars = (*LIARS, "liar-4")
        believed.contents = dict.fromkeys(liars, "all the same")
        claim(believed, liars)
        gone = dropped(believed, 100.0)
        assert {chunk for _node, chunk in gone} == set(range(40))
        assert not {node for node, _chunk in gone} & set(REAL)

    def test_surplus_that_others_really_hold_goes(self, believed: Play) -> None:
        claim(believed, LIARS)
        gone = dropped(believed, 100.0)
        assert len(gone) == 3 * 40
        for chunk in range(40):
            state = believed.cluster.chunks.get(chunk)
            assert state is not None and len(state.holders) == 3

    def test_a_liar_beside_a_real_replica_too_many_does_not_keep_that(self, believed: Play) -> None:
        believed.join("dn-4")
        believed.contents = {"liar-1": "something else"}
        claim(believed, ("dn-4", "liar-1"))
        gone = dropped(believed, 100.0)
        assert {chunk for _node, chunk in gone} == set(range(40))
        assert "liar-1" not in {node for node, _chunk in gone}, "it may be the only one that tells the truth"

    def test_a_corrupt_replica_stays_while_only_liars_say_that_they_hold_a_good_one(self, play: Play) -> None:
        play.join("dn-1", *LIARS)
        play.open_for_business()
        play.publish([record(7, hint=("dn-1",))])
        play.contents = dict.fromkeys(LIARS)
        for liar in LIARS:
            beat = Heartbeat(usage_of(play, liar), added=[Replica(7, 1, 1000)])
            play.cluster.heartbeat(play.now_s, liar, beat)
        corrupt = Heartbeat(usage_of(play, "dn-1"), corrupt=[Replica(7, 1, 1000)])
        play.cluster.heartbeat(play.now_s, "dn-1", corrupt)
        assert ("dn-1", 7) not in dropped(play, 100.0)
        play.contents = {"liar-2": None, "liar-3": None}
        assert ("dn-1", 7) in dropped(play, 100.0), "when one of them shows that it has it"

    def test_holder_that_cannot_show_its_replica_is_asked_ever_more_rarely(self, believed: Play) -> None:
        believed.contents = {"liar-1": None}
        claim(believed, ("liar-1",))
        asked = [
            believed.now_s
            for ticked in believed.ticks(4 * proof_backoff_max_s)
            for question in ticked.questions
            if question.node == "liar-1"
        ]
        assert 5 < len(asked) < 15
        assert believed.cluster.possession.doubted == 40

    def test_a_datanode_that_starts_anew_has_shown_nothing(self, believed: Play) -> None:
        """Proofs of the earlier process say nothing about this one's replicas."""
        claim(believed, LIARS)
        believed.now_s += 0.5
        ticked = believed.cluster.tick(believed.now_s, 0)
        assert {question.node for question in ticked.questions} == {*REAL, *LIARS}
        believed.prove(ticked)
        believed.join(*REAL)
        believed.now_s += 0.5
        assert believed.cluster.tick(believed.now_s, 0).orders == []


def state(chunk: int, length: int = 1000) -> ChunkState:
    return ChunkState(chunk, 1, length, 3)


def possession() -> Possession:
    return Possession(lambda: b"nonce" * 4)


def answer(question: Question) -> ReplicasProven:
    return ReplicasProven([proof(challenge) for challenge in question.message.challenges])


class TestQuestions:
    def test_a_datanode_is_asked_one_question_at_a_time_and_about_so_much(self) -> None:
        asking = possession()
        chunks = iter(range(10_000))
        while asking.ask(0.0, state(next(chunks)), ["a", "b"]):
            pass
        first = asking.take_questions(0.0)
        assert [len(question.message.challenges) for question in first] == [proofs_per_node_max] * 2
        assert not asking.ask(0.0, state(20_000), ["b", "c"]) and asking.ask(0.0, state(20_000), ["c"])
        asking.answered(first[1], answer(first[1]))
        assert asking.ask(0.0, state(30_000), ["b", "c"]) and not asking.ask(0.0, state(30_001), ["a"])
        assert [question.node for question in asking.take_questions(0.0)] == ["c", "b"]

    def test_a_large_chunk_is_asked_about_alone(self) -> None:
        asking = possession()
        assert asking.ask(0.0, state(1, proof_bytes_per_node_max), ["a"])
        assert not asking.ask(0.0, state(2), ["a"])

    @pytest.mark.parametrize("reply", [Failure("ChunkError", "the disk failed"), Done(), ReplicasProven([])])
    def test_an_answer_that_shows_nothing_is_evidence_of_nothing(self, reply: Failure | Done) -> None:
        asking = possession()
        asking.ask(0.0, state(1), ["a"])
        (question,) = asking.take_questions(0.0)
        asking.answered(question, reply)
        (evidence,) = asking.take_evidence(0.0)
        assert evidence.agreeing(["a"]) == []

    def test_a_proof_that_nobody_asked_for_and_one_of_another_version_count_for_nothing(self) -> None:
        asking = possession()
        asking.ask(0.0, state(1), ["a", "b"])
        a, b = asking.take_questions(0.0)
        asking.answered(a, ReplicasProven([ReplicaProof(1, 2, b"x", b"x"), ReplicaProof(99, 1, b"x", b"x")]))
        asking.answered(Question("b", a.message), answer(b))
        assert not asking.take_evidence(0.0)
        asking.answered(b, answer(b))
        (evidence,) = asking.take_evidence(0.0)
        assert evidence.agreeing(["a", "b"]) == ["b"]

    def test_holder_that_never_answers_is_waited_for_so_long_and_can_be_asked_again(self) -> None:
        asking = possession()
        asking.ask(0.0, state(1, proof_bytes_per_node_max), ["a"])
        (hung,) = asking.take_questions(0.0)
        assert not asking.take_evidence(proof_timeout_s - 1)
        (evidence,) = asking.take_evidence(proof_timeout_s)
        assert not evidence.proofs
        assert asking.ask(proof_timeout_s, state(2), ["a"])
        (question,) = asking.take_questions(proof_timeout_s)
        asking.answered(hung, answer(hung))
        assert not asking.take_evidence(proof_timeout_s)
        asking.answered(question, answer(question))
        assert len(asking.take_evidence(proof_timeout_s)) == 1

    def test_whatever_happens_nobody_is_left_with_a_load(self) -> None:
        """Random questions, answers, silences and losses; in the end, each datanode can be asked for many proofs
        again.
        """
        rng = Random(7)
        asking = possession()
        under_way: list[Question] = []
        now_s, nodes = 0.0, ["a", "b", "c", "d"]
        for chunk in range(3000):
            now_s += rng.choice((0.0, 0.1, 40.0))
            if asking.may_ask(now_s, chunk):
                asking.ask(now_s, state(chunk, rng.choice((10, 1 << 20))), rng.sample(nodes, rng.randint(1, 4)))
            under_way += asking.take_questions(now_s)
            while under_way and rng.random() < 0.6:
                question = under_way.pop(rng.randrange(len(under_way)))
                if rng.random() < 0.8:
                    asking.answered(question, answer(question))
            if rng.random() < 0.05:
                asking.node_lost(rng.choice(nodes))
            asking.take_evidence(now_s)
        asking.take_evidence(now_s + proof_timeout_s)
        while asking.take_evidence(now_s + proof_timeout_s):
            pass
        for number, node in enumerate(nodes):
            assert asking.ask(now_s, state(10_000 + number, proof_bytes_per_node_max), [node])
