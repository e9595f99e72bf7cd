"""The agent: a service on a node that may run queries. It starts what its list allows and the coordinator wants.

One thread. Every second, and whenever a run has ended, it tells the coordinator what it runs and is answered with
all that it is to run; between two answers nothing is begun. What it runs ends with it, or when the coordinator has
not answered for a while: each run's guard sees to that (`run_guard`), whatever has become of the agent.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from peacefs.client.control.retry import is_not_leading
from peacefs.protocol.errors import (
    PeacefsError,
    PeerError,
    PeerRefused,
    PeerTimeout,
    PeerUnreachable,
    ProtocolViolation,
    QueryFailed,
    StartupError,
    from_wire,
)
from peacefs.protocol.handshake import COORDINATOR, Identity
from peacefs.protocol.messages import AgentBeat, AgentOrders, Failure, Message, RunLogTail, RunOrder, RunReport
from peacefs.protocol.tokens import Signer
from peacefs.runtime import private_files
from peacefs.runtime.connection_handshakes import open_connection
from peacefs.runtime.connections import SocketConnection
from peacefs.runtime.secret import find_secret_file, read_again, read_secrets
from peacefs.runtime.tls import TlsFiles, TlsIdentity, describe_tls, require_tls_for
from peacefs.service.lifeline import announce, when_parent_dies
from peacefs.service.log_style import LOG_STYLE_DEFAULT, LogStyle
from peacefs.service.process import log_to_stderr

from .command_list import CommandList, given_run, read_command_list, start_of
from .coordinator_contact import CoordinatorContact, CoordinatorTurns
from .reconciliation import Key, key_of, reconcile, standby_of
from .run_account import Accounts, hide_memory, home_of
from .run_process import RunProcess, tail_of
from .run_tokens import RunTokens
from .standby_letters import StandbyLetters

agent_beat_interval_s: Final = 1.0
# One with a standby that waits asks more often: the query stands still until it hears.
agent_beat_with_standby_interval_s: Final = 0.2
# An answer that comes later is of no use: what it says may not be so any more.
agent_answer_timeout_s: Final = 3.0
# A run that is to stop has so long before it is killed.
run_stop_grace_s: Final = 3.0
run_logs_kept_max: Final = 5
run_logs_sent_max: Final = 8


log = logging.getLogger("peacefs.agent")

_POLL_S = 0.05


@dataclass(frozen=True)
class AgentOptions:
    """The options of an agent. `coordinator` is its port for datanodes; logs of runs lie in `directory`.

    `host` is how the node is called by its datanode, if it has one: that says which replicas are near.
    """

    directory: Path
    commands: Path
    coordinator: tuple[str, int]
    name: str | None = None
    host: str | None = None
    rack: str = ""
    secret_file: Path | None = None
    tls: TlsFiles | None = None
    #: The other coordinators of the cluster, one of which leads.
    more_coordinators: tuple[tuple[str, int], ...] = ()
    #: True if a coordinator on another machine may be reached without TLS.
    no_tls: bool = False
    ready_fd: int | None = None
    parent_fd: int | None = None
    log: LogStyle = LOG_STYLE_DEFAULT


def run(options: AgentOptions) -> None:
    """Serves until it is told to stop. Raises StartupError when it cannot start."""
    log_to_stderr("agent", options.log)
    hide_memory()
    listed = read_command_list(options.commands)
    coordinator_hosts = [host for host, _ in (options.coordinator, *options.more_coordinators)]
    require_tls_for(coordinator_hosts, options.tls, no_tls=options.no_tls)
    tls = None if options.tls is None else TlsIdentity(options.tls)
    accounts = Accounts(listed.accounts, os.geteuid())
    if warning := accounts.warning():
        log.warning(warning)
    secret_file = find_secret_file(options.secret_file)
    if secret_file is None:
        raise StartupError("an agent needs the cluster's secret: pass --secret-file")
    signer = Signer(*read_secrets(secret_file))
    signal.signal(signal.SIGHUP, lambda *_: read_again(signer, secret_file))
    logs = options.directory / "logs"
    try:
        private_files.make_directory(options.directory)
        private_files.make_directory(logs)
        private_files.mend(options.directory, lambda entry: entry == logs)
        if os.geteuid() == 0:
            # Accounts of runs pass through to their directories and tokens, and see no names.
            options.directory.chmod(0o711)
        tokens = RunTokens(options.directory.absolute() / "tokens")
        letters = StandbyLetters(options.directory.absolute() / "standbys")
    except OSError as error:
        raise StartupError(f"cannot use {options.directory}: {error.strerror}") from None
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    when_parent_dies(options.parent_fd, stop.set)
    log.info("%s", describe_tls(tls, coordinator_hosts))
    if tls is not None:
        tls.start_watch()
    try:
        Agent(options, listed, accounts, logs.absolute(), tokens, letters, signer, stop, tls).serve()
    finally:
        if tls is not None:
            tls.stop_watch()


class Agent:
    """Used from one thread, but for the event that stops it."""

    def __init__(
        self,
        options: AgentOptions,
        listed: CommandList,
        accounts: Accounts,
        logs: Path,
        tokens: RunTokens,
        letters: StandbyLetters,
        signer: Signer,
        stop: threading.Event,
        tls: TlsIdentity | None = None,
    ) -> None:
        self._tls = tls
        self._options = options
        self._listed = listed
        self._accounts = accounts
        self._logs = logs
        self._tokens = tokens
        self._letters = letters
        self._stop = stop
        host = options.host or socket.gethostname()
        self._host = host
        self._name = options.name or host
        self._process = uuid.uuid4().hex
        self._me = Identity("", "agent", self._name, signer)
        self._running: dict[Key, RunProcess] = {}
        #: The standbys that some of these runs were.
        self._taken: dict[Key, Key] = {}
        self._ended: dict[Key, RunReport] = {}
        #: Those that the coordinator does not want any more.
        self._unwanted: set[Key] = set()
        #: The logs that the last orders asked for.
        self._logs_wanted: list[Key] = []
        self._was_answered = False
        self._contact = CoordinatorContact()
        self._coordinators = (options.coordinator, *options.more_coordinators)
        self._turns = CoordinatorTurns(len(self._coordinators))

    def serve(self) -> None:
        """Until told to stop; nothing that it started is left then. Raises StartupError if it is refused."""
        try:
            while not self._stop.is_set():
                pause_s = self._speak()
                self._pause(pause_s)
        finally:
            self._end_all()
            self._sign_off()
            log.info("stopped")

    # -- with the coordinator --------------------------------------------------------------------------

    def _speak(self) -> float:
        """Over one connection, for as long as it lasts; return after how many seconds to try again."""
        try:
            connection = self._connected()
            with contextlib.closing(connection):
                while not self._stop.is_set():
                    self._beat(connection)
                    waits = bool(self._letters.waiting)
                    self._pause(agent_beat_with_standby_interval_s if waits else agent_beat_interval_s)
            return 0.0
        except PeerRefused as refusal:
            if not self._was_answered and not refusal.retriable:
                raise StartupError(f"the coordinator refuses this agent: {refusal.message}") from None
            return self._failed(f"the coordinator refuses this agent: {refusal.message}", refusal.message)
        except (PeerUnreachable, PeerTimeout) as fault:
            return 0.0 if self._turns.move_on() else self._failed(fault.message, "unreachable")
        except PeacefsError as fault:
            if is_not_leading(fault) and self._turns.move_on():
                return 0.0
            return self._failed(fault.message, fault.message)

    def _failed(self, fault: str, kind: str) -> float:
        said, pause_s = self._contact.failed(fault, kind, busy=bool(self._running))
        if said is not None:
            log.warning("%s", said)
        return pause_s

    def _connected(self) -> SocketConnection:
        address = self._coordinators[self._turns.current]
        return open_connection(address, "the coordinator", self._me, self._tls, role=COORDINATOR)[0]

    def _beat(self, connection: SocketConnection) -> None:
        asked_s = time.monotonic()
        connection.send(self._told(), b"", agent_answer_timeout_s, 1)
        answer: Message = connection.receive(agent_answer_timeout_s).message
        if isinstance(answer, Failure):
            raise from_wire(answer.code, answer.message)
        if not isinstance(answer, AgentOrders):
            raise ProtocolViolation(f"an agent's word was answered by {type(answer).__name__}")
        self._turns.answered()
        if not self._was_answered:
            self._was_answered = True
            log.info("agent %s on %s: the coordinator answers", self._name, self._host)
            self._contact.answered()
            announce(self._options.ready_fd, {"role": "agent", "pid": os.getpid(), "name": self._name})
        elif (said := self._contact.answered()) is not None:
            log.info("%s", said)
        for process in self._running.values():
            process.encourage()
        self._logs_wanted = [
            (each.query, each.run) for each in answer.logs[:run_logs_sent_max] if "/" not in each.query + each.run
        ]
        self._obey(answer, asked_s)

    def _told(self, *, leaving: bool = False) -> AgentBeat:
        runs = [RunReport(*key, is_ready=self._letters.is_ready(key)) for key in self._running]
        return AgentBeat(
            self._name,
            self._process,
            self._host,
            self._options.rack,
            self._listed.told(),
            self._listed.runs_max,
            [*runs, *self._ended.values()],
            leaving,
            [RunLogTail(*key, self._log_tail(key)) for key in self._logs_wanted],
        )

    def _log_tail(self, key: Key) -> str:
        """Return the end of a run's log; of one that took over from a standby only while it runs."""
        process = self._running.get(key)
        query, run = key
        return tail_of(self._logs / f"{query}.{run}.log") if process is None else process.log_tail()

    def _sign_off(self) -> None:
        """So that what ran here is started elsewhere at once; who does not hear it finds out by the silence."""
        if not self._was_answered:
            return
        with contextlib.suppress(PeerError):
            connection = self._connected()
            with contextlib.closing(connection):
                connection.send(self._told(leaving=True), b"", agent_answer_timeout_s, 1)
                connection.receive(agent_answer_timeout_s)

    # -- with what runs here ---------------------------------------------------------------------------

    def _obey(self, orders: AgentOrders, asked_s: float) -> None:
        steps = reconcile(self._running, self._ended, orders.runs, self._letters.waiting)
        for order in steps.take_over:
            self._hand_over(order, orders.coordinator)
        self._unwanted = set(steps.stop)
        for key in steps.forget:
            del self._ended[key]
        for order in orders.runs:
            if key_of(order) in self._running:
                self._tokens.keep(order, self._accounts.of(order.user))
        for order in steps.start:
            if time.monotonic() - asked_s > agent_answer_timeout_s:
                # This process was held up; what was answered may not be so any more.
                return
            self._start(order, orders.coordinator)

    def _start(self, order: RunOrder, coordinator: str) -> None:
        key = key_of(order)
        if len(self._running) >= self._listed.runs_max:
            return  # one of them is to end first
        self._drop_old_logs(order.query)
        try:
            account = self._accounts.of(order.user)
            home = home_of(account, self._logs.parent)
            shown = dict(self._tokens.keep(order, account))
            if order.standby:
                shown.update(self._letters.begin(key, account))
            ca_file = None if self._tls is None else self._tls.files.ca
            start = start_of(order, self._listed, coordinator, os.environ, account, home, shown, ca_file)
            self._running[key] = RunProcess(start, self._logs / f"{order.query}.{order.run}.log")
        except QueryFailed as fault:
            self._tokens.drop(key)
            self._letters.drop(key)
            self._ended[key] = RunReport(*key, ended=True, last_words=fault.message)
            return
        what = "standby" if order.standby else "run"
        log.info("query %s, %s %s: %s was started", order.query, what, order.run, order.command)

    def _hand_over(self, order: RunOrder, coordinator: str) -> None:
        """Give the process of a standby a run, of which it is the driver from now on."""
        standby, key = standby_of(order), key_of(order)
        self._running[key] = self._running.pop(standby)
        self._taken[key] = standby
        self._tokens.take_over(standby, key)
        self._letters.hand_over(standby, given_run(order, coordinator, tls=self._tls is not None))
        log.info("query %s: standby %s takes over, as run %s", order.query, order.takes_over_from, order.run)

    def _pause(self, seconds: float) -> None:
        """Until it is over, or this agent is to stop, or a run has ended."""
        until_s = time.monotonic() + seconds
        while not self._note_ended() and (left_s := until_s - time.monotonic()) > 0:
            for key in self._unwanted & self._running.keys():
                self._running[key].stop(time.monotonic(), run_stop_grace_s)
            if self._stop.wait(min(left_s, _POLL_S) if self._running else left_s):
                return

    def _note_ended(self) -> bool:
        ended = [key for key, process in self._running.items() if process.status is not None]
        for key in ended:
            process = self._running.pop(key)
            self._tokens.drop(key)
            self._letters.drop(self._taken.pop(key, key))
            self._ended[key] = RunReport(*key, ended=True, status=process.status, last_words=process.last_words())
            log.info("query %s, run %s ended with status %d", *key, process.status)
        return bool(ended)

    def _end_all(self) -> None:
        deadline_s = time.monotonic() + run_stop_grace_s
        while self._running and time.monotonic() < deadline_s:
            for process in self._running.values():
                process.stop(time.monotonic(), run_stop_grace_s)
            self._note_ended()
            time.sleep(_POLL_S)
        for key, process in self._running.items():
            process.kill()
            self._tokens.drop(key)
            self._letters.drop(self._taken.pop(key, key))
        self._running.clear()
        self._ended.clear()

    def _drop_old_logs(self, query: str) -> None:
        """Delete all but the last logs of a query's runs."""
        logs = [path for path in self._logs.iterdir() if path.name.startswith(f"{query}.")]
        logs.sort(key=lambda path: path.stat().st_mtime)
        for path in logs[: max(0, len(logs) - 2 * run_logs_kept_max)]:
            path.unlink(missing_ok=True)
