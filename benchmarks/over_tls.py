"""The same cluster twice, in plain text and over TLS, for benchmarks that compare the two in one run."""

from __future__ import annotations

import contextlib
import http.client
import ssl
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.runtime.tls import TlsFiles, TlsIdentity

PLAIN, TLS = "", ", TLS"


@contextlib.contextmanager
def clusters(directory: Path, datanodes: int, *, tls: bool) -> Iterator[dict[str, LocalCluster]]:
    """Yield the clusters by the suffix of their rows' names. The second cluster is started only on request."""
    with contextlib.ExitStack() as running:
        yield {
            label: running.enter_context(
                LocalCluster(directory / f"cluster{len(label)}", datanodes=datanodes, port=0, tls=label == TLS)
            )
            for label in ((PLAIN, TLS) if tls else (PLAIN,))
        }


def context_of(cluster: LocalCluster) -> ssl.SSLContext | None:
    """Return the TLS context of an HTTP client; None for plain text."""
    if cluster.ca_file is None:
        return None
    return TlsIdentity(TlsFiles(ca=cluster.ca_file)).connector_context()


def http_connection(netloc: str, context: ssl.SSLContext | None) -> http.client.HTTPConnection:
    """Connect to a service of the cluster to which `context` belongs."""
    if context is None:
        return http.client.HTTPConnection(netloc)
    return http.client.HTTPSConnection(netloc, context=context)


def with_ratio(rows: Sequence[dict[str, Any]], name: str, same: Sequence[str]) -> list[dict[str, Any]]:
    """Add to each row over TLS its ratio to the plain row's `name`. Matching rows agree in the columns `same`."""
    plain = {
        tuple(str(row[column]) for column in same): row[name]
        for row in rows
        if not str(row[same[0]]).endswith(TLS)
    }

    def key(row: dict[str, Any]) -> tuple[str, ...]:
        return tuple(str(row[column]).removesuffix(TLS) for column in same)

    return [row | {"of plain": row[name] / plain[key(row)]} for row in rows]
