"""Decides whether clients get answers: redirects them while another coordinator leads, holds them while none does.

A stock Hadoop client that is told "standby" asks the next address at once, without a pause, and gives up after a
few such answers. So clients are told "standby" only while another coordinator is known to lead. Requests of
operators are answered by a standby, too, from its own state.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from peacefs.coordinator.limits import leader_poll_interval_s, startup_waiting_max, takeover_hold_s
from peacefs.protocol.asgi import App, Message, Receive, Scope, Send
from peacefs.protocol.errors import ServiceUnready
from peacefs.protocol.webhdfs.answers import fault_answer, send_answer

from .leadership import Leadership

#: Paths that report the coordinator's state, or copy its metadata.
_OF_ANY = (
    "/",
    "/metrics",
    "/v1/status",
    "/v1/history",
    "/v1/fsck",
    "/v1/metadata/backup",
    "/v1/openapi.json",
    "/v1/docs",
)
_PREFIXES_OF_ANY = ("/ui/", "/health/", "/v1/live/")
_READS = ("GET", "HEAD")


class Door:
    """The rule for all answers. Used from one event loop only."""

    def __init__(
        self,
        leadership: Leadership,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        *,
        leader_lives: Callable[[], Awaitable[bool]],
        hold_s: float = takeover_hold_s,
        waiting_max: int = startup_waiting_max,
    ) -> None:
        """`leader_lives` checks that the leader accepts connections: a lease outlives its leader by 2 s."""
        self._leadership = leadership
        self._leader_lives = leader_lives
        self._clock = clock
        self._sleep = sleep
        self._hold_s = hold_s
        self._waiting_max = waiting_max
        self.waiting = 0

    @property
    def may_answer(self) -> bool:
        """Return whether `pass_through` lets requests through at once."""
        return self._leadership.may_answer

    def refusal(self, *, is_read: bool) -> ServiceUnready | None:
        """Return why this coordinator may not send an answer that it has; None if it may.

        Check this again when the answer is sent: the process may have been suspended since it admitted the call,
        and another coordinator may have led meanwhile. The journal fences changes. A call that changed nothing
        counts as a read.
        """
        if not is_read:
            return None
        try:
            self._leadership.refuse_standby()
        except ServiceUnready as refusal:
            return refusal
        return None

    async def pass_through(self) -> None:
        """Return when this coordinator may answer. Raises Standby, ServiceUnready."""
        leadership = self._leadership
        if leadership.may_answer:
            return
        give_up_s = self._clock() + self._hold_s
        if self.waiting >= self._waiting_max:
            leadership.refuse_standby()
        self.waiting += 1
        try:
            while not leadership.may_answer:
                if self._clock() >= give_up_s or (leadership.knows_leader and await self._leader_lives()):
                    leadership.refuse_standby()
                await self._sleep(leader_poll_interval_s / 2)
        finally:
            self.waiting -= 1


class HttpDoor:
    """Applies the rule to HTTP, in front of another application."""

    def __init__(self, app: App, door: Door, leadership: Leadership) -> None:
        self._app = app
        self._door = door
        self._leadership = leadership

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._leadership.may_answer and scope.get("method") not in _READS:
            # The journal fences the changes of this coordinator.
            await self._app(scope, receive, send)
            return
        if scope.get("type") != "http" or _is_of_any(scope["path"]):
            await self._app(scope, receive, send)
            return
        try:
            await self._door.pass_through()
        except ServiceUnready as refusal:
            await send_answer(scope, send, fault_answer(refusal, scope))
            return
        await self._app(scope, receive, self._while_it_leads(scope, send))

    def _while_it_leads(self, scope: Scope, send: Send) -> Send:
        """Refuse to send what was read before a long suspension, because another coordinator may have led."""
        is_refused = False

        async def send_if_it_leads(message: Message) -> None:
            nonlocal is_refused
            if message["type"] == "http.response.start" and not self._leadership.may_answer:
                is_refused = True
                refusal = ServiceUnready("this coordinator may have been replaced; try again")
                await send_answer(scope, send, fault_answer(refusal, scope))
            if not is_refused:
                await send(message)

        return send_if_it_leads


def _is_of_any(path: str) -> bool:
    return path in _OF_ANY or path.startswith(_PREFIXES_OF_ANY)
