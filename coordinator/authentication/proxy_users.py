"""Proxy users, as in Hadoop: which services may act for other users, for which users, and from which hosts.

Refusals use Hadoop's wording. The rules are in a TOML file with the names of Hadoop's properties:

    hadoop.proxyuser.oozie.hosts = "10.1.0.7, 10.2.0.0/16"
    hadoop.proxyuser.oozie.groups = "analysts"
    hadoop.proxyuser.oozie.users = "alice"

A service without a rule may act for no one. `*` stands for any host, group or user, but a service may act for a
superuser only if `users` names him. Host names are resolved once, when the file is read. Otherwise pure.
"""

from __future__ import annotations

import ipaddress
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from peacefs.coordinator.namespace.permissions import Callers
from peacefs.protocol.errors import BadRequest, ImpersonationRefused, StartupError
from peacefs.protocol.values.account_names import check_account_name

proxy_users_max: Final = 1000


_ANY: Final = "*"
_KINDS: Final = ("hosts", "groups", "users")
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
#: Returns the addresses of a host name. Raises OSError.
Resolve = Callable[[str], Collection[str]]


@dataclass(frozen=True, slots=True)
class ProxyRule:
    """The users and groups for whom a service may act, and the networks from which. None stands for any."""

    networks: tuple[Network, ...] | None = ()
    groups: frozenset[str] | None = frozenset()
    users: frozenset[str] | None = frozenset()

    def is_for_user(self, user: str, groups: Collection[str], *, is_superuser: bool) -> bool:
        if self.users is not None and user in self.users:
            return True
        if is_superuser:
            return False
        return self.users is None or self.groups is None or not self.groups.isdisjoint(groups)

    def is_from_host(self, address: str | None) -> bool:
        if self.networks is None:
            return True
        try:
            found = ipaddress.ip_address(address or "")
        except ValueError:
            return False
        if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        return any(found in network for network in self.networks)


class ProxyUsers:
    """The rules of a cluster, by service."""

    def __init__(self, callers: Callers, rules: Mapping[str, ProxyRule] | None = None) -> None:
        self._callers = callers
        self._rules = dict(rules or {})

    def replace(self, rules: Mapping[str, ProxyRule]) -> None:
        self._rules = dict(rules)

    def authorize(self, real: str, effective: str, address: str | None) -> None:
        """Let `real` act for `effective`, or raise ImpersonationRefused. Raises BadRequest for an invalid name."""
        principal = self._callers.of(effective)
        rule = self._rules.get(real)
        is_superuser = principal.is_superuser and self._callers.are_checked
        if rule is None or not rule.is_for_user(effective, principal.groups, is_superuser=is_superuser):
            raise ImpersonationRefused(f"User: {real} is not allowed to impersonate {effective}")
        if not rule.is_from_host(address):
            raise ImpersonationRefused(f"Unauthorized connection for super-user: {real} from IP /{address}")


def parse_proxy_users(text: str, resolve: Resolve) -> dict[str, ProxyRule]:
    """Parse the rules. Raises StartupError, with a message of one line, if they are not in Hadoop's form."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise StartupError(f"it is not TOML: {error}") from None
    match found:
        case {"hadoop": {"proxyuser": dict(services), **other}, **others} if not other and not others:
            pass
        case _ if not found:
            return {}
        case _:
            raise StartupError("all names in it are to begin with hadoop.proxyuser")
    if len(services) > proxy_users_max:
        raise StartupError(f"it has more than {proxy_users_max} services")
    return {_checked_name(name): _rule(name, said, resolve) for name, said in services.items()}


def _checked_name(name: str) -> str:
    try:
        check_account_name("user", name)
    except BadRequest as mistake:
        raise StartupError(mistake.message) from None
    if name == _ANY:
        raise StartupError("hadoop.proxyuser.* would let everybody act for others: name the services")
    return name


def _rule(name: str, said: object, resolve: Resolve) -> ProxyRule:
    if not isinstance(said, dict) or not said.keys() <= set(_KINDS):
        raise StartupError(f"hadoop.proxyuser.{name} has hosts, groups and users, and nothing else")
    hosts, groups, users = (_words(f"hadoop.proxyuser.{name}.{kind}", said.get(kind, "")) for kind in _KINDS)
    networks = None if hosts is None else tuple(net for host in sorted(hosts) for net in _networks(host, resolve))
    return ProxyRule(networks, groups, users)


def _words(name: str, value: object) -> frozenset[str] | None:
    """Return the comma-separated words of a value; None for `*`. Raises StartupError."""
    if not isinstance(value, str):
        raise StartupError(f"{name} is a text, with commas between names")
    words = frozenset(filter(None, (word.strip() for word in value.split(","))))
    if _ANY in words and len(words) > 1:
        raise StartupError(f"{name} has {_ANY} and names: {_ANY} is for all of them")
    return None if _ANY in words else words


def _networks(host: str, resolve: Resolve) -> list[Network]:
    try:
        return [ipaddress.ip_network(host, strict=False)]
    except ValueError:
        pass
    try:
        return [ipaddress.ip_network(address) for address in resolve(host)]
    except (OSError, ValueError):
        raise StartupError(f"no address of the host {host!r} is known") from None
