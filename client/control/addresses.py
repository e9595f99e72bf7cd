"""Addresses of a coordinator, in the forms in which people write them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from peacefs.protocol.errors import BadRequest, PeerUnreachable
from peacefs.protocol.limits import coordinator_http_port_default
from peacefs.protocol.values.admin_socket import find_socket

#: The beginning of the address of a local socket, or of a coordinator's directory, which has one.
UNIX = "unix:"
#: All of them mean the coordinator's HTTP port; `webhdfs` and `swebhdfs` are what Spark is given.
_SCHEMES = ("http", "webhdfs", "peace")
_TLS_SCHEMES = ("https", "swebhdfs")


@dataclass(frozen=True)
class CoordinatorAddress:
    """Host (without the brackets of IPv6) and HTTP port of a coordinator, or its local socket."""

    host: str
    port: int
    #: True to connect over TLS.
    tls: bool = False
    #: The administrators' local socket, in place of host and port.
    socket: Path | None = None

    @property
    def netloc(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def http(self) -> str:
        if self.socket is not None:
            return f"{UNIX}{self.socket}"
        return f"{'https' if self.tls else 'http'}://{self.netloc}"

    @property
    def webhdfs(self) -> str:
        return f"{'swebhdfs' if self.tls else 'webhdfs'}://{self.netloc}"


def nobody_at(address: CoordinatorAddress) -> PeerUnreachable:
    """Return the message for a user whose coordinator cannot be reached."""
    if address.socket is not None:
        return PeerUnreachable(
            f"no coordinator listens on {address.socket}, or another user's does: is its directory the one of its "
            "--dir, and do you run as its user?"
        )
    return PeerUnreachable(
        f"no coordinator at {address.http}: is `peacefs up` running? "
        "Another address is given with --coordinator or PEACEFS_COORDINATOR"
    )


DEFAULT_ADDRESS = CoordinatorAddress("127.0.0.1", coordinator_http_port_default)


def parse_address(text: str) -> CoordinatorAddress:
    """Reads `host`, `host:port`, a URI without a path, or `unix:PATH`. Raises BadRequest."""
    if text.startswith(UNIX):
        socket = find_socket(Path(text[len(UNIX) :]))
        return CoordinatorAddress("localhost", coordinator_http_port_default, socket=socket)
    address, path = split_uri(text if "://" in text else f"http://{text}")
    if path.strip("/"):
        raise BadRequest(f"{text!r} has a path; the address of a coordinator is http://host:port")
    return address


def split_uri(text: str) -> tuple[CoordinatorAddress, str]:
    """Cuts `scheme://host:port/path` into the coordinator and the path, which is taken literally as Hadoop does.

    Raises BadRequest. The path is `/` where the URI has none.
    """
    scheme, mark, rest = text.partition("://")
    if not mark or scheme.lower() not in (*_SCHEMES, *_TLS_SCHEMES):
        raise BadRequest(f"{text!r} is no address of a coordinator: http://host:port or webhdfs://host:port/path")
    netloc, slash, path = rest.partition("/")
    return replace(_parse_netloc(netloc, text), tls=scheme.lower() in _TLS_SCHEMES), slash + path or "/"


def is_uri(text: str) -> bool:
    """Return whether a path names its coordinator too."""
    return text.partition("://")[0].lower() in (*_SCHEMES, *_TLS_SCHEMES) and "://" in text


def _parse_netloc(netloc: str, text: str) -> CoordinatorAddress:
    if netloc.startswith("["):
        host, closed, port = netloc[1:].partition("]")
        if not closed:
            raise BadRequest(f"{text!r}: no ] ends the IPv6 address")
        port = port.removeprefix(":")
    else:
        host, _, port = netloc.partition(":")
    if not host or any(character in host for character in "/@?# "):
        raise BadRequest(f"{text!r} names no host")
    if not port:
        return CoordinatorAddress(host, coordinator_http_port_default)
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise BadRequest(f"{text!r}: {port!r} is no port")
    return CoordinatorAddress(host, int(port))
