"""The datanode's connection to one coordinator: registration, reports, heartbeats, orders and calls.

One thread connects, registers, reports all replicas, and then receives. Another thread sends a heartbeat every
second. Calls are sent from their own threads and wait for the reply with their tag. If the connection breaks,
`CoordinatorLinks` repeats them until their deadline. This is safe, because every control call is idempotent.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Final, Protocol

import msgspec

from peacefs.datanode.limits import reregister_backoff_max_s
from peacefs.datanode.store.replica_changes import ReplicaChanges
from peacefs.protocol.credentials import Credential
from peacefs.protocol.errors import (
    PeacefsError,
    PeerError,
    PeerRefused,
    PeerTimeout,
    PeerUnreachable,
    from_wire,
)
from peacefs.protocol.frames import Frame
from peacefs.protocol.handshake import COORDINATOR, Identity, Peer
from peacefs.protocol.limits import dead_after_s, heartbeat_interval_s
from peacefs.protocol.messages import (
    AskStreams,
    BalanceDisks,
    DeleteChunks,
    DiskBalance,
    DiskReport,
    Failure,
    FlushUploads,
    Granted,
    GrantRefused,
    Heartbeat,
    HeartbeatAck,
    LatencySample,
    Message,
    ProveReplicas,
    Register,
    Registered,
    Replica,
    ReplicateChunk,
    ReportAgain,
    ReportChunks,
    StreamsFound,
    Trust,
    Usage,
    VerifyChunks,
)
from peacefs.runtime.connection_handshakes import open_connection
from peacefs.runtime.connections import SocketConnection
from peacefs.runtime.effects import Address
from peacefs.runtime.tls import TlsIdentity

from .awaited_replies import AwaitedReplies

report_chunks_per_frame: Final = 500
# The coordinator answers every heartbeat. A link that is silent for this time is treated as broken and reconnects.
link_silence_timeout_s: Final = 8.0
reregister_backoff_s: Final = 0.5
# Maximum number of calls under way without a waiting thread. The connection's send buffer has room for each.
begun_calls_max: Final = 64


log = logging.getLogger("peacefs.datanode")

Respond = Callable[[Message], None]
_ORDERS = ReplicateChunk | DeleteChunks | VerifyChunks | ProveReplicas


class SessionOwner(Protocol):
    """The methods of a datanode that its links call."""

    def registration(self) -> Register: ...
    def replicas(self) -> Sequence[Replica]: ...
    def usage(self) -> Usage: ...
    def samples(self) -> Sequence[LatencySample]: ...
    def disks(self) -> Sequence[DiskReport]: ...
    def epoch_seen(self, epoch: int) -> None: ...
    def clock_heard(self, clock_s: float) -> None: ...
    def commit_heard(self, commit: int) -> None: ...
    def trust_told(self, trust: Trust) -> None: ...
    def granted(self, message: Granted | GrantRefused) -> None: ...
    def streams_found(self, question: AskStreams) -> StreamsFound: ...
    def balance_disks(self, wanted: BalanceDisks) -> DiskBalance: ...
    def flush_uploads(self, wanted: FlushUploads, respond: Respond) -> None:
        """Flush uploads, and call `respond` on another thread when done."""

    def ordered(self, order: Message, respond: Respond) -> None:
        """Execute an order on another thread."""


class Leaders(Protocol):
    """What a link needs from the set of all links: who leads, and the highest epoch."""

    @property
    def epoch(self) -> int:
        """The highest epoch of a leader heard so far."""

    def heard(self, link: CoordinatorLink, epoch: int, *, leads: bool) -> bool:
        """Record a coordinator's claim; return whether this coordinator is to be obeyed."""

    @property
    def settled_epoch(self) -> int:
        """The highest epoch such that no deletion ordered in an earlier one is under way."""

    def begin(self, message: Message) -> bool:
        """Return whether to obey a message. If it orders deletions, `end` must follow."""

    def end(self, message: Message) -> None:
        """Record that an order accepted by `begin` has ended."""


class CoordinatorLink:
    """Keeps one connection to one coordinator while the service runs. Owned by `CoordinatorLinks`.

    A link has two threads: one receives, the other sends heartbeats. Calls come from any thread. The link sends no
    calls to a coordinator that has not registered the datanode.
    """

    def __init__(
        self,
        address: Address,
        me: Identity,
        credential: Credential,
        datanode: SessionOwner,
        changes: ReplicaChanges,
        leaders: Leaders,
        tls: TlsIdentity | None = None,
    ) -> None:
        self._address = address
        self._leaders = leaders
        #: The epoch for which this coordinator knows the streams that begin here.
        self._streams_told = 0
        self._beats_now = False
        self._tls = tls
        self._me = me
        self._credential = credential
        self._datanode = datanode
        self._changes = changes
        self._send_lock = threading.Lock()
        self._state = threading.Condition()
        self._connection: SocketConnection | None = None
        self._registered = False
        self._was_registered = False
        self._refusal: PeerRefused | None = None
        self._stopping = False
        self._replies = AwaitedReplies()
        self._threads = [
            threading.Thread(target=self._keep_connected, name="coordinator-link"),
            threading.Thread(target=self._keep_beating, name="heartbeat"),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End both threads, and fail all waiting calls."""
        with self._state:
            self._stopping = True
            if self._connection is not None:
                self._connection.shut_down()
            self._state.notify_all()
        for thread in self._threads:
            thread.join()

    def wait_until_registered(self, timeout_s: float) -> bool:
        """Return whether the datanode was registered in time. Raises PeerRefused after a permanent refusal."""
        with self._state:
            self._state.wait_for(
                lambda: self._was_registered or self._refusal is not None or self._stopping, timeout_s
            )
            if self._refusal is not None and not self._was_registered:
                raise self._refusal
            return self._was_registered

    @property
    def is_registered(self) -> bool:
        """True if this coordinator has registered the datanode on the current connection."""
        return self._registered

    @property
    def refusal(self) -> PeerRefused | None:
        """The coordinator's refusal, if it is permanent."""
        return self._refusal

    @property
    def address(self) -> Address:
        return self._address

    # -- calls -------------------------------------------------------------------------------------

    def call(self, message: Message, deadline_s: float) -> Message:
        """Send a request to this coordinator once, and return its reply, which may be a Failure.

        Raises PeerTimeout, and PeerUnreachable if the connection breaks or another coordinator
        leads.
        """
        with self._state:
            connection = self._connection
            if connection is None or not self._registered:
                raise PeerUnreachable(f"no connection to the coordinator at {self._address[0]}:{self._address[1]}")
        tag, reply = self._replies.begin()
        try:
            self._ask(connection, message, tag)
            return reply.result(max(0.0, deadline_s - time.monotonic()))
        except FutureTimeout:
            raise PeerTimeout("the coordinator did not answer in time") from None
        finally:
            self._replies.forget(tag)

    def begin_call(self, message: Message) -> Future[Message] | None:
        """Send a request without waiting. Return None if this coordinator cannot be asked now.

        The future fails if the connection breaks or another coordinator leads. A caller that gives up cancels it.
        At most `begun_calls_max` are under way, so that sending never blocks.
        """
        connection = self._connection
        if connection is None or not self._registered or len(self._replies) >= begun_calls_max:
            return None
        tag, reply = self._replies.begin()
        reply.add_done_callback(lambda _ended: self._replies.forget(tag))
        try:
            self._ask(connection, message, tag)
        except PeerError:
            reply.cancel()
            return None
        return reply

    def _ask(self, connection: SocketConnection, message: Message, tag: int) -> None:
        try:
            self._send(connection, message, tag)
        except PeerError:
            self._forget(connection)
            raise

    def say_stopping(self, deadline_s: float) -> None:
        """Ask this coordinator to send no more clients here; return once it has answered. Raises PeerError."""
        samples, disks = list(self._datanode.samples()), list(self._datanode.disks())
        epoch = self._leaders.settled_epoch
        beat = Heartbeat(self._datanode.usage(), samples=samples, disks=disks, epoch=epoch, stopping=True)
        self.call(beat, deadline_s)

    def replaced(self) -> None:
        """Fail the waiting calls because another coordinator leads. Their callers then ask that one."""
        self._replies.fail("another coordinator leads now")

    def _send(self, connection: SocketConnection, message: Message, tag: int = 0) -> None:
        with self._send_lock:
            connection.send(message, b"", link_silence_timeout_s, tag)

    def _forget(self, connection: SocketConnection) -> None:
        """Stop using a connection that has failed."""
        with self._state:
            if self._connection is connection:
                self._registered = False
        connection.shut_down()

    # -- the connection ----------------------------------------------------------------------------

    def _keep_connected(self) -> None:
        backoff_s = reregister_backoff_s
        started_s = time.monotonic()
        while not self._stopping:
            try:
                self._live_through_one_connection()
                backoff_s = reregister_backoff_s
            except PeerRefused as refusal:
                log.error("the coordinator refuses this datanode: %s", refusal.message)
                # A temporary refusal may be due to this datanode's previous link, until the coordinator notices
                # its end.
                if not refusal.retriable or time.monotonic() - started_s > dead_after_s:
                    with self._state:
                        self._refusal = refusal
                        self._state.notify_all()
                backoff_s = reregister_backoff_max_s / 2 if refusal.retriable else reregister_backoff_max_s
            except PeacefsError as error:
                if not self._stopping:
                    log.warning("%s; trying again in %.1f s", error.message, backoff_s)
            with self._state:
                self._state.wait_for(lambda: self._stopping, backoff_s)
            backoff_s = min(2 * backoff_s, reregister_backoff_max_s)

    def _live_through_one_connection(self) -> None:
        connection, peer = open_connection(self._address, "the coordinator", self._me, self._tls, role=COORDINATOR)
        with self._state:
            self._connection = connection
            if self._stopping:
                connection.shut_down()
        try:
            self._register(connection, peer)
            while not self._stopping:
                self._received(connection, connection.receive(link_silence_timeout_s))
        finally:
            self._disconnected(connection)

    def _register(self, connection: SocketConnection, peer: Peer) -> None:
        registration = self._datanode.registration()
        proof = self._credential.sign_registration(registration.node, peer.transcript)
        self._send(
            connection,
            msgspec.structs.replace(registration, public_key=self._credential.public_key, proof=proof),
        )
        while not isinstance(reply := connection.receive(link_silence_timeout_s).message, Registered):
            if isinstance(reply, _ORDERS | Granted | GrantRefused | AskStreams | BalanceDisks | FlushUploads):
                continue
            if isinstance(reply, Failure):
                raise from_wire(reply.code, reply.message)
            raise PeerRefused(f"registration was answered by {reply}")
        # The registration included the list of streams that begin here.
        self._streams_told = reply.epoch if reply.leads else 0
        self._hear(reply.epoch, reply.clock_s, reply.trust, leads=reply.leads)
        self._report(connection)
        with self._state:
            self._registered = self._was_registered = True
            self._state.notify_all()
        self._leaders.heard(self, reply.epoch, leads=reply.leads)
        log.info(
            "registered with the coordinator at %s:%d, epoch %d%s",
            *self._address,
            reply.epoch,
            "" if reply.leads else ", which stands by",
        )

    def _hear(self, epoch: int, clock_s: float, trust: Trust | None, *, leads: bool) -> bool:
        """Record a coordinator's claim. If it leads, accept its epoch, time and trust, and return True."""
        if not self._leaders.heard(self, epoch, leads=leads):
            return False
        self._datanode.epoch_seen(epoch)
        self._datanode.clock_heard(clock_s)
        if trust is not None:
            self._datanode.trust_told(trust)
        return True

    def _report(self, connection: SocketConnection) -> None:
        self._changes.forget()
        replicas = self._datanode.replicas()
        starts = range(0, max(1, len(replicas)), report_chunks_per_frame)
        for at in starts:
            part = list(replicas[at : at + report_chunks_per_frame])
            self._send(connection, ReportChunks(part, last=at == starts[-1]))

    def _received(self, connection: SocketConnection, frame: Frame) -> None:
        message = frame.message
        if isinstance(message, HeartbeatAck):
            if self._hear(message.epoch, message.clock_s, message.trust, leads=message.leads):
                self._datanode.commit_heard(message.commit)
                if self._streams_told < message.epoch:
                    self._beat_at_once()
            if frame.tag:
                self._replies.came(frame.tag, message)
            return
        if not self._leaders.begin(message):
            log.warning("refused %s: epoch %d has begun", type(message).__name__, self._leaders.epoch)
            self._respond(connection, Failure("PeerRefused", "another coordinator leads"), frame.tag)
            return
        if isinstance(message, ReportAgain):
            raise PeerUnreachable("the coordinator asks for a new registration")
        if isinstance(message, Granted | GrantRefused):
            self._datanode.granted(message)
        elif isinstance(message, AskStreams):
            self._respond(connection, self._datanode.streams_found(message), self._replies.next_tag())
        elif isinstance(message, BalanceDisks):
            self._respond(connection, self._datanode.balance_disks(message), frame.tag)
        elif isinstance(message, FlushUploads):
            asked = frame.tag
            self._datanode.flush_uploads(message, lambda reply: self._respond(connection, reply, asked))
        elif isinstance(message, _ORDERS):
            self._datanode.ordered(message, lambda reply: self._obeyed(connection, frame, reply))
        else:
            self._replies.came(frame.tag, message)

    def _obeyed(self, connection: SocketConnection, order: Frame, reply: Message) -> None:
        self._leaders.end(order.message)
        self._respond(connection, reply, order.tag)

    def _respond(self, connection: SocketConnection, reply: Message, tag: int) -> None:
        if tag == 0:
            return
        try:
            self._send(connection, reply, tag)
        except PeerError as error:
            log.warning("an answer to the coordinator was lost: %s", error.message)

    def _disconnected(self, connection: SocketConnection) -> None:
        with self._state:
            self._connection = None
            self._registered = False
        connection.close()
        self._replies.fail("the connection to the coordinator broke")

    def _beat_at_once(self) -> None:
        with self._state:
            self._beats_now = True
            self._state.notify_all()

    # -- heartbeats --------------------------------------------------------------------------------

    def _keep_beating(self) -> None:
        while True:
            with self._state:
                self._state.wait_for(lambda: self._stopping or self._beats_now, heartbeat_interval_s)
                if self._stopping:
                    return
                self._beats_now = False
                connection = self._connection if self._registered else None
                if self._connection is None:
                    # The report at the next registration includes all changes.
                    self._changes.forget()
            if connection is None:
                continue
            added, removed, corrupt = self._changes.take()
            samples, disks = list(self._datanode.samples()), list(self._datanode.disks())
            epoch = self._leaders.epoch
            streams = None if self._streams_told == epoch else self._datanode.registration().streams
            settled = self._leaders.settled_epoch
            beat = Heartbeat(self._datanode.usage(), added, removed, corrupt, samples, disks, settled, streams)
            try:
                self._send(connection, beat)
                self._streams_told = epoch
            except PeerError as error:
                log.warning("a heartbeat was lost: %s", error.message)
                self._forget(connection)
