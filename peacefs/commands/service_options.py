"""Options that those commands share which start services."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from peacefs.runtime.tls_variables import CA_VARIABLE, CERTIFICATE_VARIABLE, KEY_VARIABLE
from peacefs.service.browser_guard import is_host_name
from peacefs.service.log_style import LogFormat, LogLevel
from peacefs.service.trace_options import TraceOptions

if TYPE_CHECKING:
    from peacefs.runtime.tls import TlsFiles

Host = Annotated[
    str, typer.Option("--host", help="The address to bind. Addresses beyond loopback need --secret-file and TLS.")
]
Advertise = Annotated[
    str | None,
    typer.Option(
        "--advertise",
        metavar="HOST",
        help="Host name or address by which others reach this service. [default: --host]",
    ),
]
SecretFile = Annotated[
    Path | None,
    typer.Option(
        "--secret-file",
        metavar="FILE",
        envvar="PEACEFS_SECRET_FILE",
        help="File with the secret that all services share.",
    ),
]
TlsCertificate = Annotated[
    Path | None,
    typer.Option(
        "--tls-certificate",
        metavar="FILE",
        envvar=CERTIFICATE_VARIABLE,
        help="The service's certificate, in PEM; turns on TLS for all connections.",
    ),
]
TlsKey = Annotated[
    Path | None,
    typer.Option("--tls-key", metavar="FILE", envvar=KEY_VARIABLE, help="The key of the certificate."),
]
TlsCa = Annotated[
    Path | None,
    typer.Option(
        "--tls-ca",
        metavar="FILE",
        envvar=CA_VARIABLE,
        help="The CA of the certificates of all services.",
    ),
]
NoTls = Annotated[
    bool,
    typer.Option(
        "--no-tls",
        help="Allow addresses beyond loopback without TLS: everybody on the network can then read everything.",
    ),
]
ReadyDescriptor = Annotated[
    int | None,
    typer.Option("--ready-fd", metavar="FD", help="Write one line of JSON there when ready, then close it."),
]
ParentDescriptor = Annotated[
    int | None,
    typer.Option("--parent-fd", metavar="FD", help="Stop when this pipe is closed."),
]
AllowedHosts = Annotated[
    list[str] | None,
    typer.Option(
        "--allowed-host",
        metavar="HOST",
        envvar="PEACEFS_ALLOWED_HOSTS",
        help="Another name by which HTTP clients reach this service; may be repeated. Requests for other names"
        " are refused; numeric addresses are always accepted. [default: the names in --host and "
        "--advertise]",
        show_default=False,
    ),
]
LogFormatOption = Annotated[
    LogFormat,
    typer.Option("--log-format", help="Log lines as text or JSON, each with the id of its request."),
]
LogLevelOption = Annotated[
    LogLevel, typer.Option("--log-level", help="The lowest level to log; debug logs each request.")
]
Traces = Annotated[
    str | None,
    typer.Option(
        "--traces",
        metavar="URL|FILE",
        envvar="PEACEFS_TRACES",
        help="Trace requests, to an OTLP collector (http://host:4318) or into a file; needs peacefs[tracing]. "
        "[default: no traces]",
        show_default=False,
    ),
]
TraceShare = Annotated[
    float,
    typer.Option("--trace-share", metavar="SHARE", min=0, max=1, help="Share of the requests to trace."),
]
NodePort = Annotated[
    str,
    typer.Option(
        "--coordinator",
        metavar="HOST:PORT",
        help="The coordinator's port for datanodes; with standbys those of all, separated by commas.",
    ),
]


def trace_options(to: str | None, share: float) -> TraceOptions | None:
    """Return the options of traces; None if there are to be no traces."""
    return None if to is None else TraceOptions(to, share)


def tls_files_of(certificate: Path | None, key: Path | None, ca: Path | None) -> TlsFiles | None:
    """Return the files of TLS. Raises StartupError if some of them are missing."""
    from peacefs.runtime.tls import tls_files

    return tls_files(certificate, key, ca)


def allowed_hosts(names: list[str] | None) -> tuple[str, ...]:
    """Return the names of --allowed-host. Raises BadParameter for an impossible name."""
    for name in names or ():
        if not is_host_name(name):
            raise typer.BadParameter(
                f"{name!r} is not the name of a host; leave out scheme, port and path", param_hint="--allowed-host"
            )
    return tuple(names or ())


def node_addresses(text: str) -> list[tuple[str, int]]:
    """HOST:PORT of each coordinator's port for datanodes, with commas between them."""
    return [node_address(each) for each in text.split(",")]


def node_address(text: str) -> tuple[str, int]:
    """HOST:PORT of the coordinator's port for datanodes and agents."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise typer.BadParameter(f"{text!r} is not HOST:PORT", param_hint="--coordinator")
    return host.removeprefix("[").removesuffix("]"), int(port)
