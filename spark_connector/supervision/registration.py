"""Register a query with the coordinator, which keeps it running: from Python, and for `peacefs supervise`."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from peacefs.client.control.addresses import is_uri, name_cluster, parse_address, split_uri
from peacefs.client.control.supervised_queries import SupervisedQueries, WantedQuery
from peacefs.protocol.errors import BadRequest
from peacefs.protocol.limits import supervised_restarts_default
from peacefs.protocol.values.supervised_queries import QueryStatus


def supervise(
    command: Sequence[str],
    *,
    coordinator: str,
    name: str | None = None,
    checkpoint: str | None = None,
    on: Sequence[str] = (),
    restarts_max: int = supervised_restarts_default,
    standby: bool = False,
    user: str | None = None,
) -> QueryStatus:
    """Register a query: agents start it on an allowed node and, if it fails, restart it from its checkpoint.

    `command` begins with a name from the agents' lists; `checkpoint` is a path of the cluster, or its URI. Each
    start is a new run, passed to the command as PEACEFS_CHECKPOINT and `{checkpoint}`; writes of older runs are
    refused. A query that ends with status 0 is not restarted. With `standby` a second driver, if possible on
    another node, waits in `begin_run`, which the command must call. Raises BadRequest, FileAlreadyExists,
    PeerError.
    """
    if not command:
        raise BadRequest("say which command is to be supervised")
    path = "" if checkpoint is None else _path(checkpoint, coordinator)
    wanted = WantedQuery(
        name=name or posixpath.basename(path.rstrip("/")) or command[0],
        command=command,
        checkpoint=path,
        nodes=on,
        restarts_max=restarts_max,
        standby=standby,
    )
    with SupervisedQueries(coordinator, user) as queries:
        return queries.register(wanted)


def _path(checkpoint: str, coordinator: str) -> str:
    if is_uri(checkpoint):
        name_cluster(parse_address(coordinator))
        address, path = split_uri(checkpoint)
        if address != parse_address(coordinator):
            raise BadRequest(f"{checkpoint} is in another cluster than {coordinator}")
        return path
    if not checkpoint.startswith("/"):
        raise BadRequest(f"the checkpoint {checkpoint!r} is no absolute path")
    return checkpoint
