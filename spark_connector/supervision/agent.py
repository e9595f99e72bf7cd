"""The agent: a service on a node that runs queries. It starts what its list allows and the coordinator orders.

It uses one thread. Every second, and whenever a run has ended, it reports its runs to the coordinator. The answer
lists all runs that it should have; between two answers it starts nothing. Each run has a guard (`run_guard`),
which ends the run when the agent is gone or the coordinator has been silent for too long.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import stat
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
    StartupError,
    from_wire,
)
from peacefs.protocol.handshake import COORDINATOR, Identity
from peacefs.protocol.messages import AgentBeat, AgentOrders, Failure, Message, RunLogTail
from peacefs.protocol.tokens import Signer
from peacefs.runtime import private_files
from peacefs.runtime.connection_handshakes import open_connection
from peacefs.runtime.connections import SocketConnection
from peacefs.runtime.secret import find_secret_file, read_again, read_secrets
from peacefs.runtime.tls import TlsFiles, TlsIdentity, describe_tls, require_tls_for
from peacefs.service.lifeline import announce, when_parent_dies
from peacefs.service.log_style import LOG_STYLE_DEFAULT, LogStyle
from peacefs.service.process import log_to_stderr

from .command_list import read_command_list
from .coordinator_contact import CoordinatorContact, CoordinatorTurns
from .local_runs import LocalRuns
from .reconciliation import Key
from .run_account import Accounts, hide_memory
from .run_tokens import RunTokens
from .standby_letters import StandbyLetters

agent_beat_interval_s: Final = 1.0
# With a waiting standby, the agent asks more often: the query stands still until the standby has its run.
agent_beat_with_standby_interval_s: Final = 0.2
# A later answer is ignored, because it may be outdated.
agent_answer_timeout_s: Final = 3.0
run_logs_sent_max: Final = 8
_PASSED_THROUGH_MODE: Final = 0o711


log = logging.getLogger("peacefs.agent")


@dataclass(frozen=True)
class AgentOptions:
    """The options of an agent. `coordinator` is its port for datanodes; `directory` has the logs of runs.

    `host` is the name by which the local datanode is known, if there is one. It determines which replicas are
    near.
    """

    directory: Path
    commands: Path
    coordinator: tuple[str, int]
    name: str | None = None
    host: str | None = None
    rack: str = ""
    secret_file: Path | None = None
    tls: TlsFiles | None = None
    #: The other coordinators of the cluster. One of all of them leads.
    more_coordinators: tuple[tuple[str, int], ...] = ()
    #: True if a coordinator on another machine may be reached without TLS.
    no_tls: bool = False
    ready_fd: int | None = None
    parent_fd: int | None = None
    log: LogStyle = LOG_STYLE_DEFAULT


def run(options: AgentOptions) -> None:
    """Serve until told to stop. Raises StartupError."""
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
        # Accounts of runs pass through to their directories and tokens, and see no names.
        lets_through = os.geteuid() == 0
        is_as_wanted = lets_through and stat.S_IMODE(options.directory.stat().st_mode) == _PASSED_THROUGH_MODE
        private_files.mend(logs if is_as_wanted else options.directory, lambda entry: entry == logs)
        if lets_through:
            options.directory.chmod(_PASSED_THROUGH_MODE)
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
        runs = LocalRuns(listed, accounts, logs.absolute(), tokens, letters, tls)
        Agent(options, runs, signer, stop, tls).serve()
    finally:
        if tls is not None:
            tls.stop_watch()


class Agent:
    """Reports runs to the coordinator and carries out its orders, for as long as `serve` runs.

    Used from one thread, except for the event that stops it.
    """

    def __init__(
        self,
        options: AgentOptions,
        runs: LocalRuns,
        signer: Signer,
        stop: threading.Event,
        tls: TlsIdentity | None = None,
    ) -> None:
        self._tls = tls
        self._options = options
        self._runs = runs
        self._stop = stop
        host = options.host or socket.gethostname()
        self._host = host
        self._name = options.name or host
        self._process = uuid.uuid4().hex
        self._me = Identity("", "agent", self._name, signer)
        #: The logs that the last orders requested.
        self._logs_wanted: list[Key] = []
        self._was_answered = False
        self._contact = CoordinatorContact()
        self._coordinators = (options.coordinator, *options.more_coordinators)
        self._turns = CoordinatorTurns(len(self._coordinators))

    def serve(self) -> None:
        """Serve until told to stop, then stop everything it has started. Raises StartupError if it is refused."""
        try:
            while not self._stop.is_set():
                pause_s = self._speak()
                self._runs.pause(pause_s, self._stop)
        finally:
            self._runs.end_all()
            self._sign_off()
            log.info("stopped")

    # -- with the coordinator --------------------------------------------------------------------------

    def _speak(self) -> float:
        """Talk over one connection until it ends. Return the number of seconds to wait before the next attempt."""
        try:
            connection = self._connected()
            with contextlib.closing(connection):
                while not self._stop.is_set():
                    self._beat(connection)
                    waits = self._runs.have_standby
                    pause_s = agent_beat_with_standby_interval_s if waits else agent_beat_interval_s
                    self._runs.pause(pause_s, self._stop)
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
        said, pause_s = self._contact.failed(fault, kind, busy=self._runs.are_running)
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
            raise ProtocolViolation(f"an agent's report was answered by {type(answer).__name__}")
        self._turns.answered()
        if not self._was_answered:
            self._was_answered = True
            log.info("agent %s on %s: the coordinator answers", self._name, self._host)
            self._contact.answered()
            announce(self._options.ready_fd, {"role": "agent", "pid": os.getpid(), "name": self._name})
        elif (said := self._contact.answered()) is not None:
            log.info("%s", said)
        self._runs.encourage()
        self._logs_wanted = [
            (each.query, each.run) for each in answer.logs[:run_logs_sent_max] if "/" not in each.query + each.run
        ]
        self._runs.obey(answer, asked_s + agent_answer_timeout_s)

    def _told(self, *, leaving: bool = False) -> AgentBeat:
        return AgentBeat(
            self._name,
            self._process,
            self._host,
            self._options.rack,
            self._runs.listed.told(),
            self._runs.listed.runs_max,
            self._runs.reports(),
            leaving,
            [RunLogTail(*key, self._runs.log_tail(key)) for key in self._logs_wanted],
        )

    def _sign_off(self) -> None:
        """Tell the coordinator that the runs have ended, so that it starts them elsewhere at once, not after a
        timeout.
        """
        if not self._was_answered:
            return
        with contextlib.suppress(PeerError):
            connection = self._connected()
            with contextlib.closing(connection):
                connection.send(self._told(leaving=True), b"", agent_answer_timeout_s, 1)
                connection.receive(agent_answer_timeout_s)
