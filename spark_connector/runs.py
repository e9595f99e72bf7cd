"""Begin a run of a query, which takes over the checkpoint: older runs can no longer write to it.

    run = begin_run("webhdfs://coordinator:9870/checkpoints/orders")
    query = stream.writeStream.option("checkpointLocation", run.location).start()

Each start of a query begins a run. Spark reads and writes the checkpoint through a path that names the run. Once a
newer run has begun, writes of an older run are refused, and its query stops with the message of `RunSuperseded`.
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
    """A run that has begun. Pass `location` to Spark as `checkpointLocation`.

    `root` is the checkpoint's own URI, the same for all runs. `number` is the run's number in readable form.
    `user` is the user who began the run, None for the default.
    """

    root: str
    location: str
    number: str
    user: str | None = None
    token: TokenSource | None = field(default=None, repr=False, compare=False)

    def end(self) -> None:
        """Tell the coordinator that the query is over, so that nothing waits for it.

        Raises RunSuperseded, PeerUnreachable, ...
        """
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
    """Begin a run of the query whose checkpoint is at `root`, a `webhdfs://host:port/path`.

    Makes the directory if it does not exist. Its owner is `user`, by default HADOOP_USER_NAME or the operating
    system's user, as in Spark. If the cluster requires a token (`token`, PEACEFS_TOKEN_FILE or PEACEFS_TOKEN), the
    owner is the token's user. `host` and `pid` identify the run's process, by default this one. Raises BadRequest,
    AccessDenied, PeerUnreachable, ...

    In a supervised query, for its own checkpoint (PEACEFS_CHECKPOINT or PEACEFS_CHECKPOINT_ROOT), returns the run
    that the coordinator has begun. In the driver of a standby it waits for that run: make the session first.
    """
    address, path = split_uri(root)
    name_cluster(address)
    source = TokenSource.of(token)
    if (given := await_run(root, os.environ)) is not None:
        return QueryRun(given.root, given.location, given.run, user, source)
    with CheckpointRuns(address, user, source) as runs:
        begun = runs.begin(path, host=host or socket.gethostname(), pid=os.getpid() if pid is None else pid)
    return QueryRun(address.webhdfs + begun.path, address.webhdfs + begun.location, begun.run, user, source)
