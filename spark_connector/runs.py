"""A run of a query takes its checkpoint over, so that an older one that still lives can do it no harm.

    run = begin_run("webhdfs://coordinator:9870/checkpoints/orders")
    query = stream.writeStream.option("checkpointLocation", run.location).start()

Each start of a query begins a run. Spark then reads and writes the checkpoint through a path that says which; once
a younger run has begun, what an older one writes is refused, and its query stops with `RunSuperseded`'s words.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field

from peacefs.client.control.addresses import name_cluster, split_uri
from peacefs.client.control.query_runs import CheckpointRuns
from peacefs.client.control.token_source import TokenSource

from .supervised_run import await_run


@dataclass(frozen=True, slots=True)
class QueryRun:
    """`location` is the URI for Spark's `checkpointLocation`; `root` the checkpoint's own, the same for all runs.

    `number` is the run's as people read it. `user` is who began it, None for the default.
    """

    root: str
    location: str
    number: str
    user: str | None = None
    token: TokenSource | None = field(default=None, repr=False, compare=False)

    def end(self) -> None:
        """Says that the query is over, so that nobody waits for it. Raises RunSuperseded, PeerUnreachable, ..."""
        address, path = split_uri(self.location)
        with CheckpointRuns(address, self.user, self.token) as runs:
            runs.end(path)


def begin_run(
    root: str,
    *,
    user: str | None = None,
    host: str | None = None,
    pid: int | None = None,
    token: str | None = None,
) -> QueryRun:
    """Begins a run of the query whose checkpoint is at `root`, a `webhdfs://host:port/path`.

    The directory is made if it is not there, for `user`: by default HADOOP_USER_NAME, else the operating system's,
    as Spark has it, and in any case whose the `token` is (by default PEACEFS_TOKEN_FILE or PEACEFS_TOKEN, if the
    cluster asks for one). `host` and `pid` say whose the run is, by default this process's. Raises
    BadRequest, AccessDenied, PeerUnreachable, ...

    Of a supervised query's own checkpoint (PEACEFS_CHECKPOINT or PEACEFS_CHECKPOINT_ROOT) it returns the run that
    the coordinator has begun. The driver of a standby waits here until it is given one: make the session before.
    """
    address, path = split_uri(root)
    name_cluster(address)
    source = TokenSource.of(token)
    if (given := await_run(root, os.environ)) is not None:
        return QueryRun(given.root, given.location, given.run, user, source)
    with CheckpointRuns(address, user, source) as runs:
        begun = runs.begin(path, host=host or socket.gethostname(), pid=os.getpid() if pid is None else pid)
    return QueryRun(address.webhdfs + begun.path, address.webhdfs + begun.location, begun.run, user, source)
