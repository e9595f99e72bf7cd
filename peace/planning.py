"""A dry run: what a policy would do with these sets, round by round, without a clock.

A round is about the time that one chunk takes to be written: all its chunks are granted together, and all of
them end before the next begins.
"""

from __future__ import annotations

from collections.abc import Iterable

from .policies.interface import Event, Finished, Policy, Submitted
from .policies.ledger import Grant, WriteSet


def plan_rounds(policy: Policy, write_sets: Iterable[WriteSet], round_s: float = 1.0) -> list[list[Grant]]:
    """The grants of each round, until nothing more can be granted; `policy.chunks_waiting` then counts what
    the cluster cannot take at all. The policy must be fresh: what it has in flight would never end."""
    rounds: list[list[Grant]] = []
    news: list[Event] = [Submitted(write_set) for write_set in write_sets]
    while grants := policy.handle(news, len(rounds) * round_s):
        rounds.append(grants)
        news = [Finished(grant.number) for grant in grants]
    return rounds
