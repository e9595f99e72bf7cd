"""Coordinators that share a journal, under a seed: calls are lost or late, leaders pause, and all are killed.

There are only names; `test_failover_of_the_world.py` has datanodes as well. Each safety mechanism is also
disabled, and then some seed must fail.
"""

from __future__ import annotations

from contextlib import suppress

import pytest
from simulation.played_coordinators import Story
from simulation.seeds import seeds

from peacefs.coordinator.failover.leadership import Leadership
from peacefs.coordinator.failover.service import FarBehind
from peacefs.coordinator.journal.memory import JournalInMemory
from peacefs.coordinator.journal.port import Fenced, JournalUnsure
from peacefs.coordinator.limits import leader_lease_s
from peacefs.coordinator.metadata.journal_chain import JournalDiffers
from peacefs.coordinator.metadata.store import MetadataFault
from peacefs.protocol.errors import BadRequest, Standby


class CarelessJournal(JournalInMemory):
    """Accepts entries of past epochs."""

    def append(self, epoch: int, number: int, data: bytes) -> None:
        try:
            super().append(epoch, number, data)
        except Fenced:
            self._server.entries[number] = epoch, data


class GuessingJournal(JournalInMemory):
    """Assumes that an entry without an answer was appended."""

    def append(self, epoch: int, number: int, data: bytes) -> None:
        with suppress(JournalUnsure):
            super().append(epoch, number, data)


class CarelessLeadership(Leadership):
    """Answers for as long as it believes that it leads."""

    @property
    def may_answer(self) -> bool:
        return self.leads


@pytest.mark.evidence("leader-dies")
@pytest.mark.evidence("leader-frozen")
@pytest.mark.evidence("journal-partition")
@pytest.mark.parametrize("coordinators", [2, 3])
@pytest.mark.parametrize("seed", seeds(4))
def test_failover_keeps_what_was_acknowledged(seed: int, coordinators: int) -> None:
    """Leaders also hand over meanwhile. No former leader remains that blocks the others."""
    story = Story(seed, coordinators)
    story.play()
    assert story.led


def test_hand_over_has_the_standby_lead_and_the_old_leader_answer_nobody() -> None:
    story = Story(1, 2)
    leader = story.settle()
    (other,) = [each for each in story.coordinators if each is not leader]
    began_s = story.world.now_s
    handing = story.world.spawn(leader.node, "handing over", leader.failover.hand_over())
    assert story.world.run_task(handing, limit_s=10.0) == other.leadership.me
    assert story.world.now_s - began_s < leader_lease_s / 2, "the lease was given back, not waited for"
    assert story.world.run(lambda: other.leadership.leads, limit_s=0.2)
    assert not leader.leadership.leads
    with pytest.raises(Standby, match=other.name):
        leader.leadership.refuse_standby()


def test_hand_over_to_a_standby_that_is_gone_leaves_the_leader_leading() -> None:
    story = Story(2, 2)
    leader = story.settle()
    (other,) = [each for each in story.coordinators if each is not leader]
    other.stop()
    assert leader.successor() == other.leadership.me, "nobody knows yet that it is gone"
    handing = story.world.spawn(leader.node, "handing over", leader.failover.hand_over())
    with pytest.raises(BadRequest, match=f"{other.name} did not take over .* leads on"):
        story.world.run_task(handing, limit_s=60.0)
    assert leader.leadership.may_answer
    # It keeps renewing its lease. The handover can be repeated when a standby is up.
    story.world.run(lambda: False, limit_s=20.0)
    assert leader.leadership.may_answer
    other.start()
    assert story.world.run(lambda: leader.successor() is not None, limit_s=60.0)
    again = story.world.spawn(leader.node, "handing over", leader.failover.hand_over())
    assert story.world.run_task(again, limit_s=10.0) == other.leadership.me


def test_hand_over_to_one_that_took_the_epoch_and_died_ends_the_old_leader() -> None:
    story = Story(3, 2)
    leader = story.settle()
    (other,) = [each for each in story.coordinators if each is not leader]
    other.stop()
    assert JournalInMemory(story.server).take(story.server.epoch, story.server.epoch + 1)
    handing = story.world.spawn(leader.node, "handing over", leader.failover.hand_over())
    with pytest.raises(MetadataFault, match="took the epoch, and does not lead"):
        story.world.run_task(handing, limit_s=60.0)
    assert not leader.leadership.leads
    assert story.server.leader is None, "the lease is free for others"


def test_hand_over_without_a_standby_is_refused_and_changes_nothing() -> None:
    story = Story(4, 1)
    story.is_hostile = False
    (leader,) = story.coordinators
    assert story.world.run(lambda: leader.leadership.leads, limit_s=10.0)
    handing = story.world.spawn(leader.node, "handing over", leader.failover.hand_over())
    with pytest.raises(BadRequest, match="no standby is ready"):
        story.world.run_task(handing, limit_s=1.0)
    assert leader.leadership.may_answer


@pytest.mark.parametrize("seed", seeds(2))
def test_standby_has_what_was_acknowledged_within_100_ms(seed: int) -> None:
    """A call to etcd takes up to 20 ms here, and a standby starts a call only after the last one has ended."""
    story = Story(seed, 2)
    leader = story.settle()
    (standby,) = [each for each in story.coordinators if each is not leader]
    lags_s = []
    for number in range(100):
        story.world.run(lambda: False, limit_s=story.random.uniform(0.0, 0.1))
        name = f"lag-{number}"
        making = leader.make(name)
        story.world.run_task(story.world.spawn(leader.node, "making", making), limit_s=1.0)
        acknowledged_s = story.world.now_s
        assert story.world.run(lambda name=name: name in standby.names(), limit_s=1.0)  # type: ignore[misc]
        lags_s.append(story.world.now_s - acknowledged_s)
    assert max(lags_s) <= 0.1, sorted(lags_s)[-5:]


def test_failover_without_comparing_epochs_is_noticed() -> None:
    with pytest.raises(AssertionError, match="two stores differ"):
        _play_many(journal=CarelessJournal)


def test_failover_with_appends_that_are_guessed_is_noticed() -> None:
    with pytest.raises(AssertionError):
        _play_many(journal=GuessingJournal)


def test_failover_with_leaders_that_answer_unconfirmed_is_noticed() -> None:
    with pytest.raises(AssertionError, match="replaced has answered"):
        _play_many(leadership=CarelessLeadership)


def _play_many(
    journal: type[JournalInMemory] = JournalInMemory, leadership: type[Leadership] = Leadership
) -> None:
    """Play seeds until the story's own checks fail.

    A run may also end earlier, at a standby that has a replaced entry or misses one that was never appended.
    """
    for seed in range(1, 31):
        with suppress(FarBehind, JournalDiffers):
            Story(seed, 2, journal, leadership).play()
