"""Addresses of one coordinator, or of a cluster with several, in all forms that users write."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, replace
from pathlib import Path

from peacefs.protocol.errors import BadRequest, PeerUnreachable
from peacefs.protocol.limits import coordinator_http_port_default
from peacefs.runtime.admin_socket import find_socket

#: Prefix of the address of a local socket, or of a coordinator's directory that contains one.
UNIX = "unix:"
#: Name of a cluster with several coordinators in Hadoop's URIs, in place of host and port.
NAMESERVICE = "peacefs"
#: Environment variable with the addresses of the coordinators, for programs that get no other address.
COORDINATOR_VARIABLE = "PEACEFS_COORDINATOR"
#: All schemes mean the coordinator's HTTP port. Spark uses `webhdfs` and `swebhdfs`.
_SCHEMES = ("http", "webhdfs", "peace")
_TLS_SCHEMES = ("https", "swebhdfs")


@dataclass(frozen=True)
class CoordinatorAddress:
    """Host (IPv6 without brackets) and HTTP port of a coordinator, or its local socket."""

    host: str
    port: int
    tls: bool = False
    #: The administrators' local socket, used instead of host and port.
    socket: Path | None = None
    #: The other coordinators of the cluster, any of which may be the leader.
    others: tuple[CoordinatorAddress, ...] = ()

    @property
    def each(self) -> tuple[CoordinatorAddress, ...]:
        """The address of each coordinator, without `others`."""
        return (replace(self, others=()), *self.others) if self.others else (self,)

    @property
    def netloc(self) -> str:
        """`host:port`, or a comma-separated list for several coordinators."""
        if self.others:
            return ",".join(one.netloc for one in self.each)
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def http(self) -> str:
        if self.socket is not None:
            return f"{UNIX}{self.socket}"
        return f"{'https' if self.tls else 'http'}://{self.netloc}"

    @property
    def webhdfs(self) -> str:
        """The prefix of URIs for Spark. For several coordinators it contains the name from Spark's settings."""
        return f"{'swebhdfs' if self.tls else 'webhdfs'}://{NAMESERVICE if self.others else self.netloc}"


def nobody_at(address: CoordinatorAddress) -> PeerUnreachable:
    """Return the error for a user whose coordinator cannot be reached."""
    if address.socket is not None:
        return PeerUnreachable(
            f"no coordinator listens on {address.socket}, or another user's does: is its directory the one of its "
            "--dir, and do you run as its user?"
        )
    if unknown := [one.host for one in address.each if not _has_address(one.host)]:
        return PeerUnreachable(
            f"no address is known for the host {' or '.join(unknown)}: is the name right? "
            "Another is given with --coordinator or PEACEFS_COORDINATOR"
        )
    if address.others:
        return PeerUnreachable(
            f"no coordinator at any of {address.http}: do they run? "
            "Other addresses are given with --coordinator or PEACEFS_COORDINATOR"
        )
    return PeerUnreachable(
        f"no coordinator at {address.http}: is `peacefs up` running? "
        "Another address is given with --coordinator or PEACEFS_COORDINATOR"
    )


def _has_address(host: str) -> bool:
    try:
        return bool(socket.getaddrinfo(host, None))
    except (OSError, UnicodeError):
        return False


DEFAULT_ADDRESS = CoordinatorAddress("127.0.0.1", coordinator_http_port_default)


def parse_address(text: str) -> CoordinatorAddress:
    """Parse `host`, `host:port`, a URI without a path, or `unix:PATH`. Raises BadRequest.

    Several coordinators are separated by commas: `http://a:9870,b:9870`.
    """
    if text.startswith(UNIX):
        local = find_socket(Path(text[len(UNIX) :]))
        return CoordinatorAddress("localhost", coordinator_http_port_default, socket=local)
    address, path = split_uri(text if "://" in text else f"http://{text}")
    if path.strip("/"):
        raise BadRequest(f"{text!r} has a path; the address of a coordinator is http://host:port")
    return address


def split_uri(text: str) -> tuple[CoordinatorAddress, str]:
    """Split `scheme://host:port/path` into the coordinator and the path. As in Hadoop, the path is literal.

    Raises BadRequest. The path is `/` if the URI has none.
    """
    scheme, mark, rest = text.partition("://")
    if not mark or scheme.lower() not in (*_SCHEMES, *_TLS_SCHEMES):
        raise BadRequest(f"{text!r} is no address of a coordinator: http://host:port or webhdfs://host:port/path")
    # Each of several coordinators may repeat the scheme.
    netloc, slash, path = rest.replace(f",{scheme}://", ",").partition("/")
    if netloc == NAMESERVICE and (named := _cluster_of_several()) is not None:
        return named, slash + path or "/"
    tls = scheme.lower() in _TLS_SCHEMES
    first, *others = [replace(_parse_netloc(one, text), tls=tls) for one in netloc.split(",")]
    if len({first, *others}) <= len(others):
        raise BadRequest(f"{text!r} names a coordinator twice")
    return replace(first, others=tuple(others)), slash + path or "/"


_named_cluster: list[CoordinatorAddress] = []


def _cluster_of_several() -> CoordinatorAddress | None:
    """Return the cluster that this process named, or that its environment names (an agent sets the variable)."""
    if not _named_cluster and COORDINATOR_VARIABLE in os.environ:
        name_cluster(parse_address(os.environ[COORDINATOR_VARIABLE]))
    return _named_cluster[-1] if _named_cluster else None


def name_cluster(address: CoordinatorAddress) -> None:
    """Make `webhdfs://peacefs/path` mean this cluster in this process, as in Spark's settings."""
    if address.others:
        _named_cluster[:] = [address]


def is_uri(text: str) -> bool:
    """Return whether a path also names a coordinator."""
    return text.partition("://")[0].lower() in (*_SCHEMES, *_TLS_SCHEMES) and "://" in text


def _parse_netloc(netloc: str, text: str) -> CoordinatorAddress:
    if netloc.startswith("["):
        host, closed, port = netloc[1:].partition("]")
        if not closed:
            raise BadRequest(f"{text!r}: no ] ends the IPv6 address")
        port = port.removeprefix(":")
    else:
        host, _, port = netloc.partition(":")
    is_name = not netloc.startswith("[")
    if not host or any(each in "/@?# \\" or not each.isprintable() or (is_name and each == "%") for each in host):
        raise BadRequest(f"{text!r} names no host")
    if not port:
        return CoordinatorAddress(host, coordinator_http_port_default)
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise BadRequest(f"{text!r}: {port!r} is no port")
    return CoordinatorAddress(host, int(port))
