"""Parse the address of a journal, as in `--journal`: `etcd://a:2379,b:2379/prefix`; `etcds://` for TLS."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from peacefs.protocol.errors import StartupError
from peacefs.runtime.secret import is_loopback

from .etcd import EtcdJournal
from .etcd_client import EtcdAccess
from .port import Journal

PREFIX_DEFAULT = "/peacefs"
_SCHEMES = ("etcd", "etcds")
_EXAMPLE = "etcd://a:2379,b:2379,c:2379"


class JournalOptions(NamedTuple):
    """The journal that an operator has chosen."""

    address: str
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    #: A file with one line, `user:password`.
    login: Path | None = None


def open_journal(options: JournalOptions, *, no_tls: bool = False) -> Journal:
    """Return the journal of an address. Contact nobody yet. Raises StartupError."""
    access, prefix = parse_journal(options, no_tls=no_tls)
    return EtcdJournal(access, prefix)


def parse_journal(options: JournalOptions, *, no_tls: bool = False) -> tuple[EtcdAccess, str]:
    """Return etcd's members and the prefix of the keys. Raises StartupError."""
    scheme, mark, rest = options.address.partition("://")
    if not mark or scheme not in _SCHEMES:
        raise StartupError(f"{options.address!r} is no journal: --journal names etcd's members, as {_EXAMPLE}")
    listed, slash, prefix = rest.partition("/")
    endpoints = tuple(_endpoint(text) for text in listed.split(","))
    is_tls = scheme == "etcds"
    if options.ca is not None and not is_tls:
        raise StartupError("--journal-ca is for a journal over TLS: name it as etcds://...")
    if (options.certificate is None) != (options.key is None):
        raise StartupError("--journal-certificate and --journal-key belong together")
    if not is_tls and not no_tls and not all(is_loopback(each.rpartition(":")[0]) for each in endpoints):
        raise StartupError(
            f"{options.address} would carry names over a network in the clear: use etcds:// and --journal-ca, or "
            "say --no-tls"
        )
    user, password = ("", "") if options.login is None else _login(options.login)
    access = EtcdAccess(endpoints, is_tls, options.ca, options.certificate, options.key, user, password)
    return access, f"/{prefix.strip('/')}" if slash and prefix.strip("/") else PREFIX_DEFAULT


def _endpoint(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise StartupError(f"{text!r} is not HOST:PORT: --journal names etcd's members, as {_EXAMPLE}")
    return text


def _login(file: Path) -> tuple[str, str]:
    try:
        user, colon, password = file.read_text().strip().partition(":")
    except (OSError, UnicodeDecodeError) as error:
        raise StartupError(f"cannot read {file}: {error}") from None
    if not user or not colon:
        raise StartupError(f"{file} has no line USER:PASSWORD for the journal")
    return user, password
