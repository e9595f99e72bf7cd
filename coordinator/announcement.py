"""What a coordinator says when it is ready: to its log, and to whoever has started it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import NamedTuple

from peacefs.runtime.secret import is_loopback
from peacefs.runtime.tls import TlsIdentity, describe_tls
from peacefs.service.lifeline import announce

from .options import CoordinatorOptions

log = logging.getLogger("peacefs.coordinator")


class Ports(NamedTuple):
    """The ports of a running coordinator. `hdfs` is None without one for clients of HDFS."""

    http: int
    node: int
    hdfs: int | None


def announce_ready(
    options: CoordinatorOptions,
    tls: TlsIdentity | None,
    cluster: str,
    epoch: int,
    ports: Ports,
    *,
    opens_directories: Callable[[], object],
) -> None:
    """Announce the addresses. `opens_directories` warns of directories that everybody may change."""
    host = options.advertise or options.host
    if options.check_permissions:
        opens_directories()
    if options.asks_for_tokens:
        log.info("authentication token: every request needs a token")
    elif is_loopback(options.host):
        log.info("authentication simple: user names are believed; only this machine can connect")
    else:
        log.warning(
            "authentication simple: user names are believed, so everybody who reaches this port can act as "
            "any user"
        )
    log.info(
        "cluster %s, epoch %d: HTTP on %s, datanodes on %s:%d; %s",
        cluster,
        epoch,
        f"{host}:{ports.http}",
        options.host,
        ports.node,
        describe_tls(tls, [options.host, host]),
    )
    if ports.hdfs is not None:
        log.info("clients of HDFS on hdfs://%s:%d, without encryption", host, ports.hdfs)
    announce(
        options.ready_fd,
        {
            "role": "coordinator",
            "pid": os.getpid(),
            "http_host": host,
            "http_port": ports.http,
            "node_host": host,
            "node_port": ports.node,
            "hdfs_port": ports.hdfs or 0,
            "cluster": cluster,
        },
    )
