"""The file with the rules for proxy users: read at the start, and again at SIGHUP."""

from __future__ import annotations

import logging
import socket
from pathlib import Path

from peacefs.protocol.errors import StartupError

from .proxy_users import ProxyRule, ProxyUsers, parse_proxy_users

log = logging.getLogger("peacefs.coordinator")


def read_proxy_users(file: Path | None) -> dict[str, ProxyRule]:
    """Read the rules. Without a file there are none, and no service acts for others. Raises StartupError."""
    if file is None:
        return {}
    try:
        return parse_proxy_users(file.read_text(), _addresses_of)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise StartupError(f"the proxy users of {file} cannot be read: {why}") from None
    except StartupError as mistake:
        raise StartupError(f"the proxy users of {file} cannot be used: {mistake.message}") from None


def reload_proxy_users(file: Path | None, proxy_users: ProxyUsers) -> None:
    """Replace the rules by those in the file. If the file cannot be used, log why and keep the rules."""
    if file is None:
        return
    try:
        rules = read_proxy_users(file)
    except StartupError as mistake:
        log.error("%s; the former rules stay in force", mistake.message)
        return
    proxy_users.replace(rules)
    log.info("%d services may act for others", len(rules))


def _addresses_of(host: str) -> set[str]:
    return {str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
