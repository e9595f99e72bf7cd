"""A coordinator process: reads the files that its options name, opens the metadata, and runs the service."""

from __future__ import annotations

import gc
import getpass
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import uvloop

from peacefs.protocol.errors import InvalidTopology, StartupError
from peacefs.protocol.limits import thread_switch_interval_s
from peacefs.protocol.tokens import Signer
from peacefs.runtime import private_files
from peacefs.runtime.secret import (
    find_secret_file,
    read_again,
    read_or_make_secrets,
    read_secrets,
    require_secret_for,
)
from peacefs.runtime.tls import TlsIdentity, require_plain_for, require_tls_for
from peacefs.service.process import log_to_stderr, raise_open_files_limit, trace_to
from peacefs.topology.loader import load_topology
from peacefs.topology.model import Topology

from .authentication.proxy_users import ProxyRule
from .authentication.proxy_users_file import read_proxy_users
from .failover.process import FailoverProcess
from .journal.port import Member
from .metadata.sqlite.file import STORE_NAME
from .metadata.sqlite.store import open_store
from .metadata.store import Metadata, MetadataFault, MetadataFull
from .options import CoordinatorOptions
from .service import Coordinator

#: Thresholds of the garbage collector's three generations. A collection of the youngest takes a few milliseconds.
_COLLECTED_EVERY = (20_000, 20, 100)
SECRET_NAME = "cluster.secret"


def run(options: CoordinatorOptions) -> None:
    """Serve until told to stop. Raises StartupError."""
    log_to_stderr("coordinator", options.log)
    end_traces = trace_to("coordinator", options.advertise or options.host, options.traces)
    raise_open_files_limit()
    sys.setswitchinterval(thread_switch_interval_s)
    # Collect rarely: there are hundreds of thousands of rows, and none is part of a reference cycle.
    gc.set_threshold(*_COLLECTED_EVERY)
    secret_file = find_secret_file(options.secret_file)
    require_secret_for(options.host, secret_file)
    addresses = [options.host, options.advertise or options.host]
    require_tls_for(addresses, options.tls, no_tls=options.no_tls)
    if options.hdfs_port is not None:
        require_plain_for("--hdfs-port", addresses, no_tls=options.no_tls)
    tls = None if options.tls is None else TlsIdentity(options.tls, addresses[1])
    described = _described_network(options.topology)
    rules = read_proxy_users(options.proxy_users)
    _make_directory(options.directory)
    failover = _failover_of(options)
    metadata: Metadata | None = None
    kept = options.directory / SECRET_NAME
    store = options.directory / STORE_NAME
    opened = partial(open_store, store, owner=getpass.getuser(), names_memory_bytes=options.names_memory_bytes)
    if failover is None:
        metadata = opened()
    try:
        signer = Signer(*(read_secrets(secret_file) if secret_file else read_or_make_secrets(kept)))
        if metadata is None:
            assert failover is not None
            metadata = failover.join(store, lambda writer: opened(journal=writer), signer, tls)
        reload = partial(read_again, signer, secret_file or kept)
        uvloop.run(_serve(options, metadata, signer, described, rules, tls, reload, failover))
    except (MetadataFull, MetadataFault) as fault:
        raise StartupError(f"cannot begin: {fault}. Nothing is lost; start again when that is repaired") from None
    finally:
        if metadata is not None:
            metadata.close()
        if failover is not None:
            failover.close()
        end_traces()


def _failover_of(options: CoordinatorOptions) -> FailoverProcess | None:
    """Return the failover of a coordinator with a journal, None without one. Raises StartupError."""
    if options.journal is None:
        return None
    host = options.advertise or options.host
    me = Member(f"{host}:{options.port}", f"{host}:{options.node_port}")
    return FailoverProcess(options.journal, me, no_tls=options.no_tls)


async def _serve(
    options: CoordinatorOptions,
    metadata: Metadata,
    signer: Signer,
    described: Topology | None,
    rules: Mapping[str, ProxyRule],
    tls: TlsIdentity | None,
    reload: Callable[[], None],
    failover: FailoverProcess | None,
) -> None:
    """Serve on the event loop, to which all parts belong."""
    await Coordinator(options, metadata, signer, described, rules, tls, failover).serve(reload)


def _described_network(file: Path | None) -> Topology | None:
    try:
        return load_topology(file) if file is not None else None
    except InvalidTopology as mistake:
        raise StartupError(f"the topology cannot be used: {mistake.message}") from None


def _make_directory(directory: Path) -> None:
    try:
        private_files.make_directory(directory)
        private_files.mend(directory, lambda entry: entry.name.startswith((STORE_NAME, SECRET_NAME)))
    except OSError as error:
        raise StartupError(f"cannot use {directory} for the metadata: {error.strerror}") from None
