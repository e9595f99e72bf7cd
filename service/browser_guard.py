"""Protection against requests that foreign web pages send through a user's browser (CSRF, DNS rebinding).

A web page can make the browser of a developer send requests to this service. Three rules prevent that:

- The Host header must name this service. In a DNS rebinding attack it has the attacker's host name.
- `Origin` and `Sec-Fetch-Site`, if sent, must be our own. Only plain navigation may start on another site.
- A browser that changes something must send a header that HTML forms cannot send: Hadoop's
  `dfs.webhdfs.rest-csrf.*` with its defaults.

Any IP address is accepted as Host: only names can be rebound, and behind port mapping a service does not know its
own address. Programs such as curl and Hadoop's client send no Origin and need no custom header.

No answer has an `Access-Control-Allow-...` header, so pages of other origins cannot read any.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from typing import Final

from peacefs.protocol.asgi import App, Message, Receive, Scope, Send
from peacefs.protocol.errors import AccessDenied, BadRequest, PeacefsError
from peacefs.protocol.webhdfs.answers import Headers, error_answer, send_answer
from peacefs.runtime.secret import is_loopback

#: Hadoop's `dfs.webhdfs.rest-csrf.custom-header`, `.methods-to-ignore` and `.browser-useragents-regex`.
CUSTOM_HEADER: Final = b"x-xsrf-header"
_METHODS_THAT_CHANGE_NOTHING: Final = ("GET", "OPTIONS", "HEAD", "TRACE")
_BROWSER = re.compile(rb"Mozilla|Opera")
_DEFAULT_PORTS = ("80", "443")
_SHOWN_CHARACTERS = 100
# Maximum number of accepted Host headers that are remembered.
accepted_names_max: Final = 256
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")
_PROTECTION: Final[Headers] = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
]
_POLICY: Final = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")


class OwnNames:
    """The host names of this service: bound, advertised, and additionally allowed."""

    def __init__(self, bound: str, advertised: str, allowed: Iterable[str] = ()) -> None:
        names = {_canonical(name) for name in (bound, advertised, *allowed)}
        if not is_loopback(bound):
            names.add(_canonical(socket.gethostname()))
        self._names = frozenset(names)
        #: Host headers that were accepted, exactly as clients wrote them.
        self._accepted: set[str] = set()

    def include(self, host: str) -> bool:
        """Return whether a Host header's name is ours. IP addresses and localhost names always are."""
        if host in self._accepted:
            return True
        is_ours = self._includes(_canonical(host))
        if is_ours and len(self._accepted) < accepted_names_max:
            self._accepted.add(host)
        return is_ours

    def _includes(self, name: str) -> bool:
        return name in self._names or _is_address(name) or name == "localhost" or name.endswith(".localhost")


class BrowserGuard:
    """ASGI middleware that applies `check` to each request and adds security headers to each answer."""

    def __init__(self, app: App, names: OwnNames) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = with_protection(list(message.get("headers", ())))
            await send(message)

        try:
            check(scope, self._names)
        except PeacefsError as refusal:
            await send_answer(scope, protected, error_answer(refusal))
            return
        await self._app(scope, receive, protected)


def check(scope: Scope, names: OwnNames) -> None:
    """Check one request.

    Raises AccessDenied for a foreign host or site, BadRequest for a browser's change without the custom header.
    """
    hosts: list[bytes] = []
    origin = site = mode = None
    is_browser = has_custom_header = False
    for name, value in scope["headers"]:
        if name == b"host":
            hosts.append(value)
        elif name == b"origin":
            origin = value
        elif name == b"sec-fetch-site":
            site = value
        elif name == b"sec-fetch-mode":
            mode = value
        elif name == b"user-agent":
            is_browser = is_browser or _BROWSER.match(value) is not None
        elif name == CUSTOM_HEADER:
            has_custom_header = True
    host = _the_host(hosts, scope)
    if host and not names.include(_split(host)[0]):
        raise AccessDenied(
            f"{host[:_SHOWN_CHARACTERS]!r} is not a name of this service; if it leads here on purpose, start the "
            f"service with --allowed-host {_split(host)[0][:_SHOWN_CHARACTERS]}"
        )
    changes = scope["method"] not in _METHODS_THAT_CHANGE_NOTHING
    if origin is not None and not _is_of(origin.decode("latin-1"), host):
        raise AccessDenied("the request comes from a web page of another origin; such requests are refused")
    is_visit = mode == b"navigate" and not changes
    if site is not None and site not in (b"same-origin", b"none") and not is_visit:
        raise AccessDenied("the request comes from a web page of another site; such requests are refused")
    if changes and not has_custom_header and (is_browser or origin is not None or site is not None):
        # Begins with the message that Hadoop sends.
        raise BadRequest(
            "Missing Required Header for CSRF Vulnerability Protection: a browser that changes something sends "
            "X-XSRF-HEADER, with any value"
        )


def with_protection(headers: Headers) -> Headers:
    """Add headers against content sniffing, framing, cross-origin embedding and referrers."""
    headers += _PROTECTION
    if not any(name == _POLICY[0] for name, _value in headers):
        headers.append(_POLICY)
    return headers


def _the_host(hosts: list[bytes], scope: Scope) -> str:
    """Return the Host header; empty if an HTTP/1.0 request has none. Raises BadRequest."""
    if len(hosts) > 1 or (not hosts and scope.get("http_version") != "1.0"):
        raise BadRequest("the request has no Host header" if not hosts else "the request has several Host headers")
    return hosts[0].decode("latin-1") if hosts else ""


def _split(authority: str) -> tuple[str, str]:
    """Split `host`, `host:port`, `[v6]` or `[v6]:port` into host and port."""
    host, colon, port = authority.rpartition(":")
    if not colon or not port.isdecimal():
        host, port = authority, ""
    return host.removeprefix("[").removesuffix("]"), port


def _canonical(host: str) -> str:
    return host.lower().removesuffix(".")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_of(origin: str, host: str) -> bool:
    """Return whether an Origin header matches our own `host`; "null" never does."""
    scheme, separator, authority = origin.partition("://")
    if not separator or scheme not in ("http", "https") or not host:
        return False
    (name, port), (own_name, own_port) = _split(authority), _split(host)
    ports = {port, own_port}
    return _canonical(name) == _canonical(own_name) and (
        len(ports) == 1 or ("" in ports and any(default in ports for default in _DEFAULT_PORTS))
    )


def is_host_name(text: str) -> bool:
    """Return whether the text is a host name or address, without scheme, port or path."""
    return _is_address(text) or _NAME.fullmatch(_canonical(text)) is not None
