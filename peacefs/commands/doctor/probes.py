"""Measure the services of a cluster, as a client reaches them. Neither judges nor changes anything."""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeVar

import httpx
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from peacefs.client.channels import tls_of
from peacefs.client.control.addresses import CoordinatorAddress
from peacefs.client.control.http import CoordinatorHttp
from peacefs.protocol.decoding import UNREADABLE
from peacefs.protocol.errors import PeacefsError, PeerRefused, from_remote_exception
from peacefs.protocol.handshake import Identity
from peacefs.protocol.limits import MIB
from peacefs.protocol.values.cluster_status import ClusterStatus, DatanodeStatus
from peacefs.protocol.values.guarded_directories import GUARDED
from peacefs.runtime.connection_handshakes import open_connection
from peacefs.runtime.secret import is_loopback

from .facts import Durations, Service, ServiceMetrics

# `peacefs doctor` waits this long for a service's answer, and asks this many services at once.
doctor_answer_timeout_s: Final = 20.0
doctor_probes_at_once: Final = 16
doctor_metrics_bytes_max: Final = 16 * MIB


S = TypeVar("S")
_SLOW_S = "0.1"
_DURABLE = ("peacefs_commit_seconds", "peacefs_seal_seconds")


class ClusterProbes:
    """Probes of one cluster's services, for `visit.measure`. Up to `doctor_probes_at_once` run at once.

    An unreachable service becomes a `Service` with a `fault`, not an exception.
    """

    def __init__(self, address: CoordinatorAddress) -> None:
        self._address = address
        self._tls = tls_of(address, None)

    def coordinators(self) -> list[Service]:
        """Probe the coordinators with known addresses."""
        return _at_once(self._coordinator, self._address.each)

    def status(self) -> ClusterStatus:
        """Return the cluster's status. Raises PeacefsError."""
        http = CoordinatorHttp(self._address, tls=self._tls)
        try:
            answer = http.ask("GET", "/v1/status", retry_s=0, answer_timeout_s=doctor_answer_timeout_s)
            return msgspec.json.decode(answer, type=ClusterStatus)
        except UNREADABLE as fault:
            raise PeerRefused(
                f"{self._address.http} does not answer like a peacefs coordinator: {fault}"
            ) from None
        finally:
            http.close()

    def guarded_directories(self) -> dict[str, int]:
        """Return the permissions of guarded directories that exist and that the caller may see."""
        http = CoordinatorHttp(self._address, tls=self._tls)
        found = {}
        try:
            for path in GUARDED:
                # A missing directory is no fault.
                with suppress(PeacefsError):
                    answer = http.ask(
                        "GET",
                        f"/webhdfs/v1{path}",
                        params={"op": "GETFILESTATUS"},
                        retry_s=0,
                        answer_timeout_s=doctor_answer_timeout_s,
                    )
                    found[path] = int(msgspec.json.decode(answer)["FileStatus"]["permission"], 8)
        finally:
            http.close()
        return found

    def datanodes(self, status: ClusterStatus) -> list[Service]:
        """Probe the datanodes that are not dead; the status says enough about dead ones.

        Returns none for a user who is no superuser, since such a user does not see the datanodes' addresses.
        """
        return _at_once(self._datanode, [each for each in status.datanodes if each.host and each.state != "dead"])

    def _coordinator(self, address: CoordinatorAddress) -> Service:
        http = CoordinatorHttp(address, tls=self._tls)
        service = Service(
            role="coordinator",
            name="coordinator" if len(self._address.each) == 1 else f"coordinator {address.netloc}",
            host=address.host,
            http_port=address.port,
            is_loopback=address.socket is not None or is_own(address.host),
        )

        def ask() -> bytes:
            return http.ask("GET", "/metrics", retry_s=0, answer_timeout_s=doctor_answer_timeout_s)

        try:
            return replace(service, metrics=measured(ask))
        except PeacefsError as fault:
            return replace(service, fault=fault.message)
        finally:
            http.close()

    def _datanode(self, datanode: DatanodeStatus) -> Service:
        host = f"[{datanode.host}]" if ":" in datanode.host else datanode.host
        service = Service(
            role="datanode",
            name=datanode.node,
            host=datanode.host,
            http_port=datanode.http_port,
            is_loopback=is_own(datanode.host),
            data_port=datanode.data_port,
            data_fault=self._data_fault(datanode),
        )
        url = f"{'http' if self._tls is None else 'https'}://{host}:{datanode.http_port}/metrics"
        verify: ssl.SSLContext | bool = False if self._tls is None else self._tls.connector_context()
        with httpx.Client(trust_env=False, verify=verify, timeout=doctor_answer_timeout_s) as http:
            try:
                return replace(service, metrics=measured(lambda: _body(http, url)))
            except (httpx.HTTPError, PeacefsError) as fault:
                return replace(service, fault=f"{url}: {fault or type(fault).__name__}")

    def _data_fault(self, datanode: DatanodeStatus) -> str:
        """Shake hands with a datanode as a client does, and return what went wrong; empty if nothing."""
        me = Identity("", "client", f"doctor-{os.getpid()}", None)
        try:
            connection, _peer = open_connection((datanode.host, datanode.data_port), datanode.node, me, self._tls)
        except PeacefsError as fault:
            return fault.message
        connection.close()
        return ""


def _at_once(probe: Callable[[S], Service], subjects: Sequence[S]) -> list[Service]:
    with ThreadPoolExecutor(doctor_probes_at_once) as pool:
        return list(pool.map(probe, subjects))


def _body(http: httpx.Client, url: str) -> bytes:
    """Return the body. Raises PeerRefused unless it is a successful answer."""
    with http.stream("GET", url) as answer:
        body = b""
        for piece in answer.iter_bytes():
            body += piece
            if len(body) > doctor_metrics_bytes_max:
                raise PeerRefused("its metrics have no end")
        if not answer.is_success:
            raise _refusal(answer.status_code, body)
        return body


def _refusal(status: int, body: bytes) -> PeacefsError:
    """Return the error of a peacefs service, or else one that names the status."""
    try:
        told = msgspec.json.decode(body)
    except UNREADABLE:
        told = None
    if isinstance(told, dict) and isinstance(told.get("RemoteException"), dict):
        return from_remote_exception(told)
    return PeerRefused(f"HTTP status {status}")


def measured(ask: Callable[[], bytes], clock: Callable[[], float] = time.time) -> ServiceMetrics:
    """Request the metrics twice. The second request reuses the connection, so its timing shows the clock best.

    Raises PeerRefused if the answer is not a service's metrics.
    """
    ask()
    sent_s = clock()
    text = ask()
    come_s = clock()
    try:
        families = list(text_string_to_metric_families(text.decode()))
    except ValueError:
        families = []
    found = {
        (sample.name, sample.labels.get("le", "")): sample.value
        for family in families
        for sample in family.samples
    }
    if not any(name.startswith("peacefs_") for name, _label in found):
        raise PeerRefused("something else than peacefs answers there")
    versions = (
        sample.labels.get("version")
        for family in families
        for sample in family.samples
        if sample.name == "peacefs_build_info"
    )
    shown_s = found.get(("peacefs_time_seconds", ""))
    return ServiceMetrics(
        version=next(versions, None),
        clock_ahead_s=None if shown_s is None else shown_s - (sent_s + come_s) / 2,
        clock_within_s=(come_s - sent_s) / 2,
        descriptors_max=found.get(("process_max_fds", "")),
        descriptors_open=found.get(("process_open_fds", "")),
        tls_days_left=found.get(("peacefs_tls_certificate_days_left", "")),
        durable=next((each for name in _DURABLE if (each := _durations(found, name))), None),
    )


def _durations(found: dict[tuple[str, str], float], name: str) -> Durations | None:
    count = int(found.get((f"{name}_count", ""), 0))
    if not count:
        return None
    slow = count - found.get((f"{name}_bucket", _SLOW_S), count)
    return Durations(count, found[f"{name}_sum", ""] / count, slow / count)


def is_own(host: str) -> bool:
    """Return whether a name or address leads only to this machine; False if it cannot be resolved."""
    if is_loopback(host):
        return True
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(is_loopback(str(address[0])) for *_rest, address in found)
