"""The core that supervises members for `peacefs up`: events and `now` in, effects out. Pure.

A member that ends is restarted after growing pauses, and given up after too many failures. A slow start delays no
other member. These events are reported in one line each, as is a recovery. A repeated fault is reported once.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

# A datanode not ready after this time is reported as slow. The cluster is usable without it.
local_slow_start_s: Final = 20.0
# A member that dies is restarted after growing pauses, up to a maximum number of times. A run that lasts
# `local_restart_forgotten_s` resets the count.
local_restart_pause_s: Final = 0.5
local_restart_pause_max_s: Final = 30.0
local_restarts_max: Final = 8
local_restart_forgotten_s: Final = 60.0


@dataclass(frozen=True)
class StartMember:
    member: str


@dataclass(frozen=True)
class Say:
    text: str


@dataclass(frozen=True)
class GiveUp:
    """Stop restarting the member; `text` tells the user why."""

    member: str
    text: str


Effect = StartMember | Say | GiveUp


class MemberPhase(enum.Enum):
    STARTING = enum.auto()
    RUNNING = enum.auto()
    WAITING = enum.auto()
    GIVEN_UP = enum.auto()


@dataclass
class _Watched:
    phase: MemberPhase
    #: The time when the phase began, and the time when a waiting member is due.
    since_s: float
    due_s: float = 0.0
    failures: int = 0
    #: The last report about the member while it has a problem.
    said: str = ""


class MemberSupervision:
    """Supervises members that have just been started. `MemberSupervisor` drives it and must:

    1. report each member that is `ready` and that has `ended`, even if it ended while starting;
    2. call `tick` several times per second;
    3. perform the effects in their order.
    """

    def __init__(self, now_s: float, members: Iterable[str]) -> None:
        self._members = {name: _Watched(MemberPhase.STARTING, now_s) for name in members}

    def phase(self, member: str) -> MemberPhase:
        return self._members[member].phase

    @property
    def is_settled(self) -> bool:
        """True if every member is ready, has failed, or was reported as slow."""
        return all(each.phase is not MemberPhase.STARTING or each.said for each in self._members.values())

    def ready(self, now_s: float, member: str) -> list[Effect]:
        watched = self._members[member]
        if watched.phase is not MemberPhase.STARTING:
            return []
        had_said, watched.said = watched.said, ""
        watched.phase, watched.since_s = MemberPhase.RUNNING, now_s
        return [Say(f"{member} is back" if watched.failures else f"{member} is ready")] if had_said else []

    def ended(self, now_s: float, member: str, why: str) -> list[Effect]:
        """Record the end of a member; `why` describes it in words, such as "was killed by SIGKILL"."""
        watched = self._members[member]
        if watched.phase not in (MemberPhase.STARTING, MemberPhase.RUNNING):
            return []
        if watched.phase is MemberPhase.RUNNING and now_s - watched.since_s >= local_restart_forgotten_s:
            watched.failures = 0
        watched.failures += 1
        if watched.failures > local_restarts_max:
            watched.phase = MemberPhase.GIVEN_UP
            times = f"was started again {local_restarts_max} times in vain, and {why}"
            return [GiveUp(member, f"{member} {times}; it stays away until the cluster starts again")]
        pause_s = min(local_restart_pause_s * 2 ** (watched.failures - 1), local_restart_pause_max_s)
        watched.phase, watched.since_s, watched.due_s = MemberPhase.WAITING, now_s, now_s + pause_s
        if watched.said == why:
            return []
        watched.said = why
        return [Say(f"{member} {why}; it is started again")]

    def tick(self, now_s: float) -> list[Effect]:
        effects: list[Effect] = []
        for name, watched in self._members.items():
            if watched.phase is MemberPhase.WAITING and now_s >= watched.due_s:
                watched.phase, watched.since_s = MemberPhase.STARTING, now_s
                effects.append(StartMember(name))
            elif (
                watched.phase is MemberPhase.STARTING
                and not watched.said
                and now_s - watched.since_s >= local_slow_start_s
            ):
                watched.said = "is slow to start"
                effects.append(Say(f"{name} is slow to start; the others do not wait for it"))
        return effects
