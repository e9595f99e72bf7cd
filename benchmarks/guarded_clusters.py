"""Run the same cluster without guards, with tokens, and over TLS, for benchmarks that compare them in one run."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from peacefs.client.control.token_administration import TokenAdministration
from peacefs.client.local_cluster.cluster import LocalCluster

from .over_tls import context_of

NO_GUARD, TOKENS, TLS = "none", "tokens", "TLS"
GUARDS = (NO_GUARD, TOKENS, TLS)
_TOKEN_S = 3600


@dataclass(frozen=True)
class GuardedCluster:
    """A running cluster and the credentials of its clients."""

    guard: str
    cluster: LocalCluster

    def token(self, user: str) -> str:
        """Return a token of `user`; an empty one if the cluster does not authenticate."""
        if self.guard != TOKENS:
            return ""
        with TokenAdministration(f"unix:{self.cluster.directory}") as administration:
            return administration.create(user, _TOKEN_S).token

    @property
    def context(self) -> ssl.SSLContext | None:
        """The TLS context of an HTTP client; None in plain text."""
        return context_of(self.cluster)


@contextlib.contextmanager
def guarded_clusters(
    directory: Path, datanodes: int, prepare: Callable[[Path], None] | None = None
) -> Iterator[dict[str, GuardedCluster]]:
    """Start one cluster for each of GUARDS, by guard.

    `prepare` is called with the metadata of each cluster while it is stopped, before it is measured.
    """
    with contextlib.ExitStack() as running:
        clusters = {}
        for guard in GUARDS:
            place = directory / guard
            if prepare is not None:
                with LocalCluster(place, datanodes=datanodes, port=0) as made:
                    store = made.directory / "coordinator" / "metadata.sqlite"
                prepare(store)
            options = ["--authentication=token"] if guard == TOKENS else []
            cluster = LocalCluster(
                place, datanodes=datanodes, port=0, coordinator_options=options, tls=guard == TLS
            )
            clusters[guard] = GuardedCluster(guard, running.enter_context(cluster))
        yield clusters
