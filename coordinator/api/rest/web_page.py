"""`/ui/`: the web page, whose files come from the installed package. It has no data: its scripts call REST.

The Content-Security-Policy makes the browser refuse everything from other hosts, scripts that are not files of the
package, and text that would become markup.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import Final, NamedTuple

from fastapi import FastAPI, Request, Response

from peacefs.protocol.errors import FileNotFound

#: The whole page is below this path, and needs no authentication.
PAGE_PREFIX: Final = "/ui/"
PAGE_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "manifest-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_PACKAGE = "peacefs.coordinator.api.page"


class _Part(NamedTuple):
    content: bytes
    media_type: str
    tag: str


def add_web_page(app: FastAPI) -> None:
    parts = _parts()

    def answer(name: str, request: Request) -> Response:
        part = parts.get(name)
        if part is None:
            raise FileNotFound(f"no file of this name belongs to the page: {name[:40]!r}")
        # Browsers must revalidate each time, so that old scripts never show data of a newer coordinator.
        headers = {"content-security-policy": PAGE_POLICY, "cache-control": "no-cache", "etag": part.tag}
        if request.headers.get("if-none-match") == part.tag:
            return Response(status_code=304, headers=headers)
        return Response(part.content, media_type=part.media_type, headers=headers)

    @app.api_route(PAGE_PREFIX, methods=["GET", "HEAD"], include_in_schema=False)
    async def page(request: Request) -> Response:
        return answer("index.html", request)

    @app.api_route(PAGE_PREFIX + "{name}", methods=["GET", "HEAD"], include_in_schema=False)
    async def part(name: str, request: Request) -> Response:
        return answer(name, request)


def _parts() -> dict[str, _Part]:
    """Read all files of the page into memory, so that no request path reaches the file system."""
    found = {}
    for entry in files(_PACKAGE).iterdir():
        kind = _TYPES.get(entry.name.rpartition(".")[2])
        if kind is not None and entry.is_file():
            content = entry.read_bytes()
            found[entry.name] = _Part(content, kind, f'"{hashlib.sha256(content).hexdigest()[:16]}"')
    return found
