"""Proxy users, as Hadoop has them: services that may act for others, and for whom, from where.

The rules are in a file of TOML with the names of Hadoop's properties, and its words refuse:

    hadoop.proxyuser.oozie.hosts = "10.1.0.7, 10.2.0.0/16"
    hadoop.proxyuser.oozie.groups = "analysts"
    hadoop.proxyuser.oozie.users = "alice"

Whoever is not in it acts for nobody. `*` is for any host, group or user, but a superuser is acted for only where
`users` names it. Names of hosts are looked up once, when the file is read. Pure but for that.
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

# Services that may act for others.
proxy_users_max: Final = 1000


_ANY: Final = "*"
_KINDS: Final = ("hosts", "groups", "users")
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
#: Returns the addresses of a host's name. Raises OSError.
Resolve = Callable[[str], Collection[str]]


@dataclass(frozen=True, slots=True)
class ProxyRule:
    """The users for whom one service may act, and the hosts from where. None stands for any."""

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
    """The rules of a cluster; `replace` gives it others."""

    def __init__(self, callers: Callers, rules: Mapping[str, ProxyRule] | None = None) -> None:
        self._callers = callers
        self._rules = dict(rules or {})

    def replace(self, rules: Mapping[str, ProxyRule]) -> None:
        self._rules = dict(rules)

    def authorize(self, real: str, effective: str, address: str | None) -> None:
        """Raises ImpersonationRefused, BadRequest for what nobody can be called."""
        principal = self._callers.of(effective)
        rule = self._rules.get(real)
        is_superuser = principal.is_superuser and self._callers.are_checked
        if rule is None or not rule.is_for_user(effective, principal.groups, is_superuser=is_superuser):
            raise ImpersonationRefused(f"User: {real} is not allowed to impersonate {effective}")
        if not rule.is_from_host(address):
            raise ImpersonationRefused(f"Unauthorized connection for super-user: {real} from IP /{address}")


def parse_proxy_users(text: str, resolve: Resolve) -> dict[str, ProxyRule]:
    """Raises StartupError, in one line, for whatever is not as Hadoop has it."""
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
    """The words of a value, which are separated by commas; None for `*`."""
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
