"""The longest wait under each policy, in virtual time, with an endless stream of newcomers.

All newcomers have less to write, and there are always more of them than capacity.
"""

from __future__ import annotations

import pytest
from support.scheduled import Scheduled

from peacefs.client.transfer.write_grants import write_set_restate_s
from peacefs.peace.policies.express import AGE_BYTES_S, BEGUN_S
from peacefs.protocol.limits import MIB

TICK_S = 0.25
CHUNK_S = 2.0
LARGE_CHUNKS = 6
LARGE_BYTES = 64 * MIB
#: `ExpressPolicy`'s: how long others may overtake the first set that lacks capacity.
PATIENCE_S = 30.0


class Crowd:
    """Six datanodes that receive one chunk each, for `CHUNK_S`; four newcomers always wait."""

    def __init__(self, policy: str) -> None:
        self.play = Scheduled(nodes=6, streams_per_node=1, policy=policy)
        self.now_s = 0.0
        self._began_s = self.play.now_s
        self._newcomers = 0
        self._stated_s: dict[str, float] = {}
        for _ in range(8):
            self._one_more()
        self.ahead = self.play.scheduling.chunks_waiting

    def _one_more(self) -> None:
        self._newcomers += 1
        self._state(f"new {self._newcomers}")

    def _state(self, name: str) -> None:
        self._stated_s[name] = self.play.now_s
        if name == "large":
            self.play.state(name, LARGE_CHUNKS, chunk_bytes=LARGE_BYTES)
        else:
            self.play.state(name, 1)

    def state_the_large_one(self) -> None:
        self._state("large")

    def pass_a_moment(self) -> None:
        play = self.play
        play.now_s += TICK_S
        self.now_s += TICK_S
        for grant in list(play.scheduling.grants):
            if play.now_s - grant.granted_s >= CHUNK_S:
                play.ends(grant)
        play.tick()
        waiting = {queued.request.name.removeprefix("http ") for queued in play.scheduling.queue}
        for name in waiting:
            if play.now_s - self._stated_s[name] >= write_set_restate_s:
                self._state(name)
        while len(play.scheduling.queue) < 4:
            self._one_more()

    def large_waits(self) -> int:
        return next(
            (len(each.waiting) for each in self.play.scheduling.queue if each.request.name == "http large"), 0
        )


def seconds_until_all_is_granted(crowd: Crowd, limit_s: float) -> float:
    crowd.state_the_large_one()
    began_s = crowd.now_s
    while crowd.large_waits():
        assert crowd.now_s - began_s <= limit_s, f"{crowd.large_waits()} chunks wait still, after {limit_s:.0f} s"
        crowd.pass_a_moment()
    return crowd.now_s - began_s


def test_express_serves_the_largest_set_within_its_bound() -> None:
    """No later set overtakes it after the first term. Then it gets a chunk per patience plus one chunk's time,
    after earlier sets.
    """
    crowd = Crowd("express")
    passable_s = LARGE_CHUNKS * LARGE_BYTES / AGE_BYTES_S + BEGUN_S
    turns = crowd.ahead + 4 + LARGE_CHUNKS
    waited_s = seconds_until_all_is_granted(crowd, passable_s + turns * (PATIENCE_S + CHUNK_S))
    print(f"all of it was granted after {waited_s:.1f} s; nobody may pass it after {passable_s:.1f} s")
    assert waited_s > CHUNK_S, "the newcomers were served before it: else this shows nothing"


@pytest.mark.parametrize("policy", ["paper", "flow"])
def test_policies_in_steps_serve_it_in_as_many_steps_as_there_are_chunks(policy: str) -> None:
    """A step ends one tick after its last chunk; the oldest set gets at least one chunk in each."""
    crowd = Crowd(policy)
    step_s = CHUNK_S + 2 * TICK_S
    seconds_until_all_is_granted(crowd, (crowd.ahead + LARGE_CHUNKS + 1) * step_s)


def test_random_lets_nobody_wait() -> None:
    crowd = Scheduled(nodes=6, streams_per_node=1, policy="random")
    for number in range(50):
        assert len(crowd.state(f"{number}", 8)) == 8
