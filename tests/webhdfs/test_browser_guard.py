"""The accepted Host, Origin and site of requests, and which requests need the custom header."""

from __future__ import annotations

from typing import Any

import pytest

from peacefs.protocol.errors import AccessDenied, BadRequest
from peacefs.service.browser_guard import OwnNames, check, is_host_name

_NAMES = OwnNames("10.0.0.7", "files.example.org", ("Proxy.example.org",))


def scope(method: str = "POST", **headers: str) -> dict[str, Any]:
    named = {"host": "files.example.org:9870", **headers}
    raw = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in named.items()]
    return {"type": "http", "method": method, "path": "/", "headers": raw, "http_version": "1.1"}


@pytest.mark.parametrize(
    "host",
    [
        "files.example.org:9870",
        "FILES.example.org.",
        "proxy.example.org",
        "10.0.0.7:9870",
        "[::1]:9870",
        "192.168.1.2:19870",
        "localhost:9870",
    ],
)
def test_host_that_is_ours_or_an_address_in_numbers_is_let_in(host: str) -> None:
    check(scope(host=host), _NAMES)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "files.example.org.evil.example",
        "localhost.evil.example",
        "evil.example:9870",
        "127.0.0.1.evil.example",
        "127.1",
        "0x7f000001",
        "files.example.org@evil.example",
        "evil.example:10.0.0.7",
        "[evil.example]",
    ],
)
def test_host_of_another_name_is_refused(host: str) -> None:
    with pytest.raises(AccessDenied, match="--allowed-host"):
        check(scope(host=host), _NAMES)


def test_host_must_be_there_once() -> None:
    twice = scope()
    twice["headers"].append((b"host", b"evil.example"))
    never = scope()
    never["headers"] = []
    for asked in (twice, never):
        with pytest.raises(BadRequest, match="Host header"):
            check(asked, _NAMES)
    never["http_version"] = "1.0"
    check(never, _NAMES)


@pytest.mark.parametrize(
    "agent", ["curl/8.5", "Java/17.0.15", "python-httpx/0.28", "Apache-HttpClient/4.5", "python-requests/2"]
)
def test_client_that_is_no_browser_needs_no_header(agent: str) -> None:
    for method in ("POST", "PUT", "DELETE"):
        check(scope(method, user_agent=agent), _NAMES)


@pytest.mark.parametrize(
    "headers",
    [
        {"user_agent": "Mozilla/5.0"},
        {"user_agent": "Opera/9.80"},
        {"origin": "http://files.example.org:9870"},
        {"sec_fetch_site": "same-origin"},
        {"sec_fetch_site": "none", "sec_fetch_mode": "navigate"},
    ],
)
def test_browser_must_send_the_header_to_change_and_not_to_read(headers: dict[str, str]) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        with pytest.raises(BadRequest, match="Missing Required Header for CSRF Vulnerability Protection"):
            check(scope(method, **headers), _NAMES)
        check(scope(method, **headers, x_xsrf_header=""), _NAMES)
    for method in ("GET", "HEAD", "OPTIONS", "TRACE"):
        check(scope(method, **headers), _NAMES)


@pytest.mark.parametrize(
    "origin",
    ["null", "http://evil.example", "http://files.example.org:8000", "http://files.example.org", "file://", ""],
)
def test_origin_that_is_not_ours_is_refused_whatever_is_asked(origin: str) -> None:
    for method in ("GET", "OPTIONS", "POST"):
        with pytest.raises(AccessDenied, match="another origin"):
            check(scope(method, origin=origin, x_xsrf_header="x"), _NAMES)


def test_origin_without_a_port_is_that_of_the_default_port() -> None:
    check(scope("GET", host="proxy.example.org", origin="https://proxy.example.org"), _NAMES)
    check(scope("GET", host="proxy.example.org:443", origin="https://proxy.example.org"), _NAMES)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_site_of_others_may_lead_here_and_nothing_else(site: str) -> None:
    check(scope("GET", sec_fetch_site=site, sec_fetch_mode="navigate"), _NAMES)
    for method, mode in (("GET", "no-cors"), ("GET", "cors"), ("POST", "navigate"), ("GET", "websocket")):
        with pytest.raises(AccessDenied, match="another site"):
            check(scope(method, sec_fetch_site=site, sec_fetch_mode=mode, x_xsrf_header="x"), _NAMES)


def test_name_of_a_host_has_neither_scheme_nor_port() -> None:
    assert all(map(is_host_name, ("files", "a.example.org", "10.0.0.7", "::1", "under_score", "Big.Example")))
    assert not any(map(is_host_name, ("", "http://a", "a:80", "a/b", "-a", "a b", "*")))
