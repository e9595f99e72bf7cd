"""The datanode as a process: learns its cluster, locks its directory, then runs `service.Datanode`."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import sys
import uuid
from functools import partial
from pathlib import Path

import uvloop

from peacefs.datanode.limits import reregister_backoff_max_s
from peacefs.protocol.errors import PeacefsError, PeerRefused, StartupError
from peacefs.protocol.handshake import COORDINATOR, Identity
from peacefs.protocol.limits import thread_switch_interval_s
from peacefs.protocol.tokens import Signer
from peacefs.runtime.connection_handshakes import open_connection
from peacefs.runtime.secret import (
    SECRET_FILE_VARIABLE,
    find_secret_file,
    read_again,
    read_secrets,
    require_secret_for,
)
from peacefs.runtime.tls import TlsIdentity, require_plain_for, require_tls_for
from peacefs.service.process import (
    keep_freed_memory,
    log_to_stderr,
    raise_open_files_limit,
    require_tracing,
    stop_event,
    trace_to,
    when_told_to_reload,
)

from .disks.data_directories import claim_directories, cluster_of
from .options import DatanodeOptions
from .service import Datanode, Pace

log = logging.getLogger("peacefs.datanode")


def run(options: DatanodeOptions, pace: Pace | None = None) -> None:
    """Serve until told to stop. Raises StartupError if the datanode cannot start.

    Experiments pass `pace`, which wraps the store that receives chunks. Open files are then not shared with
    readers, because such reads could not be slowed down.
    """
    log_to_stderr("datanode", options.log)
    require_tracing(options.traces)
    raise_open_files_limit()
    keep_freed_memory()
    sys.setswitchinterval(thread_switch_interval_s)
    secret_file = find_secret_file(options.secret_file)
    require_secret_for(options.host, secret_file)
    addresses = [options.host, options.advertise or options.host]
    coordinators = [host for host, _port in (options.coordinator, *options.more_coordinators)]
    require_tls_for([*addresses, *coordinators], options.tls, no_tls=options.no_tls)
    if options.hdfs_port is not None:
        require_plain_for("--hdfs-port", addresses, no_tls=options.no_tls)
    tls = None if options.tls is None else TlsIdentity(options.tls, addresses[1])
    if secret_file is None:
        raise StartupError(
            f"a datanode needs the cluster's secret: pass --secret-file or set {SECRET_FILE_VARIABLE} "
            f"(a coordinator on loopback keeps it as cluster.secret in its directory)"
        )
    uvloop.run(_serve(options, secret_file, tls, pace))


async def _serve(options: DatanodeOptions, secret_file: Path, tls: TlsIdentity | None, pace: Pace | None) -> None:
    stop = stop_event(options.parent_fd)
    signer = Signer(*read_secrets(secret_file))
    when_told_to_reload(partial(read_again, signer, secret_file))
    cluster = cluster_of(options.directory)
    if cluster is None:
        cluster = await _learn_cluster(options, signer, stop, tls)
        if cluster is None:
            return
    with claim_directories(
        options.directory, options.data_directories, cluster, f"dn-{uuid.uuid4().hex[:12]}"
    ) as claimed:
        end_traces = trace_to("datanode", claimed.directory.node, options.traces)
        try:
            await Datanode(options, claimed, signer, tls, pace).serve(stop)
        finally:
            await asyncio.to_thread(end_traces)


async def _learn_cluster(
    options: DatanodeOptions, signer: Signer, stop: asyncio.Event, tls: TlsIdentity | None
) -> str | None:
    """Return the coordinator's cluster. Wait until a coordinator answers; return None if told to stop."""
    me = Identity("", "datanode", "a new datanode", signer)
    coordinators = itertools.cycle((options.coordinator, *options.more_coordinators))
    while not stop.is_set():
        try:
            connection, peer = await asyncio.to_thread(
                open_connection, next(coordinators), "the coordinator", me, tls, role=COORDINATOR
            )
            connection.close()
            return peer.cluster
        except PeerRefused as refusal:
            raise StartupError(f"the coordinator refuses this datanode: {refusal.message}") from None
        except PeacefsError as error:
            log.warning("%s; trying again", error.message)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), reregister_backoff_max_s / 5)
    return None
