"""The datanode's connections to all coordinators of its cluster. It obeys the leader; the others are standbys.

Each link registers, reports and sends heartbeats by itself, so that a standby knows as much as the leader. The
leader is the coordinator that claims to lead in the highest epoch heard so far, including before a restart.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import Final

from peacefs.datanode.store.replica_changes import SharedChanges
from peacefs.protocol.credentials import Credential
from peacefs.protocol.errors import PeerError, PeerTimeout, PeerUnreachable
from peacefs.protocol.handshake import Identity
from peacefs.protocol.messages import Failure, Message
from peacefs.runtime.effects import Address
from peacefs.runtime.tls import TlsIdentity

from .coordinator_session import CoordinatorLink, SessionOwner
from .obedience import Obedience

# Time limit for telling the coordinators that this datanode stops, so that they send no more clients to it.
stop_notice_timeout_s: Final = 1.0
# Interval at which a datanode without a leader looks for one.
leaderless_retry_s: Final = 0.05


log = logging.getLogger("peacefs.datanode")
#: The answers of a coordinator that does not lead, or cannot lead at the moment.
_NOT_LEADING = ("Standby", "ServiceUnready")


class CoordinatorLinks:
    """The links to all coordinators, and which of them leads. Thread-safe.

    `service.Datanode` starts it; the gateway and the driver call the leader through it. A call goes to one
    coordinator at a time, and is repeated until it is answered or its deadline passes.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        me: Identity,
        credential: Credential,
        datanode: SessionOwner,
        changes: SharedChanges,
        epoch_seen: int,
        tls: TlsIdentity | None = None,
    ) -> None:
        """`epoch_seen` is the highest epoch heard before this start."""
        self._state = threading.Condition()
        self._obedience = Obedience(len(addresses), epoch_seen)
        self._stopping = False
        self._links = [
            CoordinatorLink(address, me, credential, datanode, changes.another(), self, tls)
            for address in addresses
        ]

    def start(self) -> None:
        for link in self._links:
            link.start()

    def say_stopping(self) -> bool:
        """Ask all coordinators to send no more clients here; return whether any of them has answered."""
        deadline_s, heard = time.monotonic() + stop_notice_timeout_s, False
        for link in self._links:
            with contextlib.suppress(PeerError):
                link.say_stopping(deadline_s)
                heard = True
        return heard

    def stop(self) -> None:
        with self._state:
            self._stopping = True
            self._state.notify_all()
        for link in self._links:
            link.stop()

    def wait_until_registered(self, timeout_s: float) -> bool:
        """Return whether the leader has registered the datanode. Raises PeerRefused if all coordinators refuse."""
        give_up_s = time.monotonic() + timeout_s
        refusals = [link.refusal for link in self._links]
        if all(refusals) and refusals[0] is not None:
            raise refusals[0]
        return self._leader(give_up_s) is not None

    @property
    def is_registered(self) -> bool:
        """True if the leader has registered the datanode and is connected."""
        with self._state:
            leading = self._obedience.leader
            return isinstance(leading, CoordinatorLink) and leading.is_registered

    # -- Leaders -----------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The highest epoch of a leader heard so far."""
        return self._obedience.epoch

    def heard(self, link: CoordinatorLink, epoch: int, *, leads: bool) -> bool:
        with self._state:
            before = self._obedience.leader
            if not self._obedience.heard(link, epoch, leads=leads):
                return False
            self._state.notify_all()
        if isinstance(before, CoordinatorLink) and before is not link:
            log.warning("the coordinator at %s:%d leads now, in epoch %d", *link.address, epoch)
            before.replaced()
        return True

    @property
    def settled_epoch(self) -> int:
        with self._state:
            return self._obedience.settled

    def begin(self, message: Message) -> bool:
        with self._state:
            return self._obedience.begin(message)

    def end(self, message: Message) -> None:
        with self._state:
            self._obedience.end(message)

    # -- calls ---------------------------------------------------------------------------------------

    def call(self, message: Message, timeout_s: float) -> Message:
        """Send a request to the leader; repeat it on new connections, or to a new leader, until the deadline.

        Raises PeerTimeout or PeerUnreachable. A Failure is returned, not raised.
        """
        deadline_s = time.monotonic() + timeout_s
        while True:
            link = self._leader(deadline_s)
            if link is None:
                raise PeerUnreachable(f"no connection to the coordinator{self._where()}")
            try:
                reply = link.call(message, deadline_s)
            except PeerTimeout:
                raise PeerTimeout(f"the coordinator did not answer within {timeout_s:g} s") from None
            except PeerError:
                if time.monotonic() >= deadline_s:
                    raise
                continue
            if len(self._links) == 1 or not isinstance(reply, Failure) or reply.code not in _NOT_LEADING:
                return reply
            if time.monotonic() >= deadline_s:
                return reply
            self._pause()

    def begin_call(self, message: Message) -> Future[Message] | None:
        """Send a request to the leader once, without waiting. Return None if no leader can be asked now.

        If the future fails, the caller should repeat the request with `call`. A caller that gives up cancels it.
        """
        with self._state:
            leading = self._obedience.leader
        begun = leading.begin_call(message) if isinstance(leading, CoordinatorLink) else None
        if begun is None or len(self._links) == 1:
            return begun
        led: Future[Message] = Future()
        led.add_done_callback(lambda ended: ended.cancelled() and begun.cancel())
        begun.add_done_callback(partial(_hand_on, led))
        return led

    def _leader(self, deadline_s: float) -> CoordinatorLink | None:
        with self._state:
            while True:
                leading = self._obedience.leader
                if isinstance(leading, CoordinatorLink) and leading.is_registered:
                    return leading
                left_s = deadline_s - time.monotonic()
                if left_s <= 0 or self._stopping:
                    return None
                self._state.wait(min(left_s, leaderless_retry_s))

    def _pause(self) -> None:
        with self._state:
            self._state.wait_for(lambda: self._stopping, leaderless_retry_s)

    def _where(self) -> str:
        return " at " + ", ".join(f"{host}:{port}" for host, port in (link.address for link in self._links))


def _hand_on(led: Future[Message], begun: Future[Message]) -> None:
    """Pass on a coordinator's answer, or fail the future if that coordinator does not lead."""
    if begun.cancelled() or not led.set_running_or_notify_cancel():
        return
    fault = begun.exception()
    if fault is None and isinstance(reply := begun.result(), Failure) and reply.code in _NOT_LEADING:
        fault = PeerUnreachable("the coordinator does not lead")
    if fault is None:
        led.set_result(begun.result())
    else:
        led.set_exception(fault)
