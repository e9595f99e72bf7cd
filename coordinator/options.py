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
    """The options of a coordinator. Ports 0 are chosen freely; `advertise` is the host that others reach it by."""

    directory: Path
    host: str = "127.0.0.1"
    port: int = coordinator_http_port_default
    node_port: int = coordinator_node_port_default
    advertise: str | None = None
    #: Other names by which clients over HTTP reach it.
    allowed_hosts: tuple[str, ...] = ()
    secret_file: Path | None = None
    #: The audit log, a line for each request; None for no log.
    audit_log: Path | None = None
    ready_fd: int | None = None
    parent_fd: int | None = None
    log: LogStyle = LOG_STYLE_DEFAULT
    #: The place for traces; None for none.
    traces: TraceOptions | None = None
    tls: TlsFiles | None = None
    #: True if an address beyond loopback may be served without TLS.
    no_tls: bool = False
    #: True to refuse users what HDFS would refuse them. The account that runs the coordinator is the superuser.
    check_permissions: bool = True
    #: Temporary files that have been left for so long are deleted; None for never.
    collect_temporary_hours: float | None = None
    #: A reader may continue for so long before its rights are checked again.
    read_token_lifetime_s: float = read_token_lifetime_s
    #: A read moves a file's access time when that is older than this; 0 for never.
    access_time_precision_s: float = 0.0
    #: The time that files deleted with `peacefs rm` stay in their users' trash; 0 for no trash.
    trash_minutes: int = 0
    #: The users of each group; those of `supergroup` are superusers.
    groups: Mapping[str, Collection[str]] = field(default_factory=dict)
    #: The file of services that may act for users; see `proxy_users`.
    proxy_users: Path | None = None
    #: The network as an administrator describes it; without it, what datanodes say and default rates.
    topology: Path | None = None
    #: The policy of `scheduling_policies.SCHEDULING_POLICIES` that grants chunks; it can be changed while running.
    policy: str = POLICY_DEFAULT
    #: The command of the process that looks at checkpoints; without it they are not told of over REST.
    look_at_checkpoints: tuple[str, ...] = ()
    #: The number of chunks that a datanode takes at once, unless something else states its capacity.
    streams_per_node: int = streams_per_node_default
    #: The memory that names may take; those that are not in it are read from the disk when they are asked for.
    names_memory_bytes: int = names_memory_bytes_default
    #: Chunks that belong to no file are deleted after their writer has been silent for so long.
    unreferenced_kept_s: float = unreferenced_chunk_kept_s
    #: The way in which callers authenticate; None: by trusted names on loopback, by tokens elsewhere.
    authentication: AuthenticationMode | None = None
    #: The journal that coordinators share of which one leads; None for a coordinator by itself.
    journal: JournalOptions | None = None

    @property
    def asks_for_tokens(self) -> bool:
        """Return whether callers need a token."""
        if self.authentication is not None:
            return self.authentication is AuthenticationMode.TOKEN
        return not is_loopback(self.host) or not is_loopback(self.advertise or self.host)
