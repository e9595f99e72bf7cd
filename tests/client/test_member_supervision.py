"""Dead members of `peacefs up` are restarted with growing pauses, and each death is reported once."""

from __future__ import annotations

from peacefs.client.local_cluster.member_supervision import (
    Effect,
    GiveUp,
    MemberPhase,
    MemberSupervision,
    Say,
    StartMember,
    local_restart_forgotten_s,
    local_restart_pause_max_s,
    local_restart_pause_s,
    local_restarts_max,
    local_slow_start_s,
)

KILLED = "was killed by SIGKILL"


class Play:
    """Supervision of three members in virtual time; the first two are ready at once."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.core = MemberSupervision(self.now_s, ["coordinator", "datanode-1", "datanode-2"])
        assert self.core.ready(self.now_s, "coordinator") == []
        assert self.core.ready(self.now_s, "datanode-1") == []

    def until_started(self, member: str) -> float:
        """Let time pass until a member is started; return the time it took."""
        began_s = self.now_s
        while StartMember(member) not in self.core.tick(self.now_s):
            self.now_s += 0.1
            assert self.now_s - began_s < 2 * local_restart_pause_max_s
        return self.now_s - began_s

    def die(self, member: str, why: str = KILLED) -> list[Effect]:
        return self.core.ended(self.now_s, member, why)


def test_restart_follows_a_death_and_both_are_said_once() -> None:
    play = Play()
    assert play.die("datanode-1") == [Say(f"datanode-1 {KILLED}; it is started again")]
    assert play.die("datanode-1") == []
    play.until_started("datanode-1")
    assert play.core.tick(play.now_s) == []
    assert play.core.ready(play.now_s, "datanode-1") == [Say("datanode-1 is back")]
    assert play.core.ready(play.now_s, "datanode-1") == []


def test_pauses_grow_up_to_a_limit_and_a_fault_that_repeats_itself_is_said_once() -> None:
    play = Play()
    said, pauses = play.die("datanode-1"), []
    for _ in range(local_restarts_max):
        pauses.append(play.until_started("datanode-1"))
        said += play.die("datanode-1", "did not start: no room")
    assert said == [
        Say(f"datanode-1 {KILLED}; it is started again"),
        Say("datanode-1 did not start: no room; it is started again"),
        GiveUp(
            "datanode-1",
            f"datanode-1 was started again {local_restarts_max} times in vain, and did not start: no room; "
            "it stays away until the cluster starts again",
        ),
    ]
    assert pauses == sorted(pauses)
    assert local_restart_pause_s <= pauses[0] <= local_restart_pause_s + 0.2
    assert local_restart_pause_max_s <= pauses[-1] <= local_restart_pause_max_s + 0.2
    play.now_s += 10_000
    assert StartMember("datanode-1") not in play.core.tick(play.now_s)
    assert play.core.phase("datanode-1") is MemberPhase.GIVEN_UP


def test_run_that_lasts_makes_up_for_the_failures_before_it() -> None:
    play = Play()
    for _ in range(3 * local_restarts_max):
        play.now_s += local_restart_forgotten_s
        assert not any(isinstance(effect, GiveUp) for effect in play.die("coordinator"))
        assert play.until_started("coordinator") < local_restart_pause_s + 0.2
        play.core.ready(play.now_s, "coordinator")


def test_member_that_dies_soon_after_each_start_is_given_up() -> None:
    play = Play()
    for _ in range(local_restarts_max):
        play.die("datanode-1")
        play.until_started("datanode-1")
        assert play.core.ready(play.now_s, "datanode-1") == [Say("datanode-1 is back")]
    (gave_up,) = play.die("datanode-1")
    assert isinstance(gave_up, GiveUp)


def test_slow_start_is_said_once_and_holds_up_nobody() -> None:
    play = Play()
    assert not play.core.is_settled
    play.now_s += local_slow_start_s
    slow = Say("datanode-2 is slow to start; the others do not wait for it")
    assert play.core.tick(play.now_s) == [slow]
    assert play.core.is_settled
    assert play.core.tick(play.now_s) == []
    # Meanwhile another member starts and dies.
    play.die("datanode-1")
    play.until_started("datanode-1")
    assert play.core.phase("datanode-2") is MemberPhase.STARTING
    assert play.core.ready(play.now_s, "datanode-2") == [Say("datanode-2 is ready")]


def test_first_start_that_fails_settles_the_cluster_as_well() -> None:
    play = Play()
    play.die("datanode-2", "did not start: no room")
    assert play.core.is_settled
