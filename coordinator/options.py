"""The options of a coordinator, with their defaults."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from peacefs.protocol.limits import (
    coordinator_http_port_default,
    coordinator_node_port_default,
    read_token_lifetime_s,
    streams_per_node_default,
    unreferenced_chunk_kept_s,
)
from peacefs.protocol.values.authentication import AuthenticationMode
from peacefs.runtime.secret import is_loopback
from peacefs.runtime.tls import TlsFiles
from peacefs.service.log_style import LOG_STYLE_DEFAULT, LogStyle
from peacefs.service.trace_options import TraceOptions

from .journal.address import JournalOptions
from .limits import names_memory_bytes_default
from .scheduling.policies import POLICY_DEFAULT


@dataclass(frozen=True)
class CoordinatorOptions:
    """The options of a coordinator. Port 0 means any free port; `advertise` is the host name that others use."""

    directory: Path
    host: str = "127.0.0.1"
    port: int = coordinator_http_port_default
    node_port: int = coordinator_node_port_default
    #: The port for clients of HDFS's own protocols; None for none.
    hdfs_port: int | None = None
    advertise: str | None = None
    #: Other names that HTTP clients use for it.
    allowed_hosts: tuple[str, ...] = ()
    secret_file: Path | None = None
    #: The file of the audit log, which has a line per request; None for no log.
    audit_log: Path | None = None
    ready_fd: int | None = None
    parent_fd: int | None = None
    log: LogStyle = LOG_STYLE_DEFAULT
    #: Where to send traces; None for nowhere.
    traces: TraceOptions | None = None
    tls: TlsFiles | None = None
    #: True to serve addresses beyond loopback without TLS.
    no_tls: bool = False
    #: True to enforce HDFS's permissions. The account that runs the coordinator is the superuser.
    check_permissions: bool = True
    #: Age at which temporary files of dead writers are deleted; None for never.
    collect_temporary_hours: float | None = None
    #: Seconds after which the rights of a reader are checked again.
    read_token_lifetime_s: float = read_token_lifetime_s
    #: A read moves a file's access time when that is older than this; 0 for never.
    access_time_precision_s: float = 0.0
    #: How long files deleted with `peacefs rm` stay in their users' trash; 0 for no trash.
    trash_minutes: int = 0
    #: The users of each group; those of `supergroup` are superusers.
    groups: Mapping[str, Collection[str]] = field(default_factory=dict)
    #: The file of services that may act for users; see `proxy_users`.
    proxy_users: Path | None = None
    #: The administrator's description of the network. Without one, datanodes' statements and default rates apply.
    topology: Path | None = None
    #: The policy of `scheduling_policies.SCHEDULING_POLICIES` that grants chunks. It can be changed at run time.
    policy: str = POLICY_DEFAULT
    #: The command of the process that inspects checkpoints. Without it, REST does not show them.
    look_at_checkpoints: tuple[str, ...] = ()
    #: Number of chunks that a datanode receives at once, unless its capacity is stated elsewhere.
    streams_per_node: int = streams_per_node_default
    #: Memory for names. Other names are read from the disk on demand.
    names_memory_bytes: int = names_memory_bytes_default
    #: Seconds of a writer's silence after which its chunks that belong to no file are deleted.
    unreferenced_kept_s: float = unreferenced_chunk_kept_s
    #: How callers authenticate; None: by believed names on loopback, by tokens elsewhere.
    authentication: AuthenticationMode | None = None
    #: The journal shared with other coordinators; None for a single coordinator.
    journal: JournalOptions | None = None

    @property
    def asks_for_tokens(self) -> bool:
        """Return whether callers need a token."""
        if self.authentication is not None:
            return self.authentication is AuthenticationMode.TOKEN
        return not is_loopback(self.host) or not is_loopback(self.advertise or self.host)
