"""The shell around the supervising core: watches the processes of a local cluster, and restarts them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from peacefs.protocol.errors import PeacefsError, StartupError

from .cluster import LocalCluster
from .member_process import LocalMember
from .member_supervision import Effect, GiveUp, MemberSupervision, Say, StartMember


class MemberSupervisor:
    """Supervises a cluster that has begun. `say` shows a line to the user. Not thread-safe."""

    def __init__(self, cluster: LocalCluster, say: Callable[[str], None]) -> None:
        self._members = {member.name: member for member in cluster.members}
        self._coordinator = cluster.coordinator.name
        self._say = say
        now_s = time.monotonic()
        self._core = MemberSupervision(now_s, self._members)
        self._core.ready(now_s, self._coordinator)

    @property
    def is_settled(self) -> bool:
        """True if each member is ready, or was reported as not ready."""
        return self._core.is_settled

    def look(self) -> None:
        """Check each member once and act on it; call this several times per second.

        Raises PeacefsError when the coordinator is given up.
        """
        for name, member in self._members.items():
            self._perform(self._seen(name, member))
        self._perform(self._core.tick(time.monotonic()))

    def _seen(self, name: str, member: LocalMember) -> list[Effect]:
        if member.is_starting:
            try:
                return self._core.ready(time.monotonic(), name) if member.poll_ready() else []
            except StartupError as fault:
                # A member that hangs is still running.
                member.kill()
                return self._core.ended(time.monotonic(), name, fault.message.removeprefix(f"{name} "))
        return [] if member.alive else self._core.ended(time.monotonic(), name, member.end)

    def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case StartMember(name):
                    self._start(name)
                case Say(text):
                    self._say(text)
                case GiveUp(name, text) if name == self._coordinator:
                    raise PeacefsError(f"{text}; stopping the datanodes")
                case GiveUp(_, text):
                    self._say(text)

    def _start(self, name: str) -> None:
        try:
            self._members[name].start()
        except OSError as error:
            # No process, descriptor or disk space is left; that may be temporary.
            why = f"cannot be started: {error.strerror}"
            self._perform(self._core.ended(time.monotonic(), name, why))
