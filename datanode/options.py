"""The options of a datanode, with their defaults."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from peacefs.protocol.limits import (
    copy_bytes_per_second,
    datanode_data_port_default,
    datanode_http_port_default,
    reserved_bytes_default,
    scrub_bytes_per_second,
    scrub_period_s,
)
from peacefs.runtime.effects import Address
from peacefs.runtime.tls import TlsFiles
from peacefs.service.log_style import LOG_STYLE_DEFAULT, LogStyle
from peacefs.service.trace_options import TraceOptions


@dataclass(frozen=True)
class DatanodeOptions:
    """The options of a datanode. Port 0 means a free port. `advertise` is the host name given to others."""

    directory: Path
    coordinator: Address
    host: str = "127.0.0.1"
    http_port: int = datanode_http_port_default
    data_port: int = datanode_data_port_default
    #: The port for HDFS clients; None to disable it.
    hdfs_port: int | None = None
    advertise: str | None = None
    #: Other host names that HTTP clients may use for this datanode.
    allowed_hosts: tuple[str, ...] = ()
    rack: str = "/default-rack"
    secret_file: Path | None = None
    tls: TlsFiles | None = None
    #: True if an address other than loopback may be served without TLS.
    no_tls: bool = False
    reserved_bytes: int = reserved_bytes_default
    #: The target duration of one scrubbing round; 0 turns scrubbing off.
    scrub_period_s: float = scrub_period_s
    scrub_bytes_per_second: float = scrub_bytes_per_second
    copy_bytes_per_second: float = copy_bytes_per_second
    #: Write large chunks around the page cache (True) or through it (False). None: choose the faster way per disk.
    write_around_cache: bool | None = None
    #: The directories for chunks, one per disk; empty means `directory` itself.
    data_directories: tuple[Path, ...] = ()
    #: The other coordinators of the cluster; one of all of them leads.
    more_coordinators: tuple[Address, ...] = ()
    ready_fd: int | None = None
    parent_fd: int | None = None
    log: LogStyle = LOG_STYLE_DEFAULT
    traces: TraceOptions | None = None
