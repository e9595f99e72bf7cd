"""`/v1/docs`: the description of REST in Swagger UI, whose files come from an installed package.

The page's Content-Security-Policy forbids loading anything from another host. Its requests have the header that
changes from a browser require.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

from fastapi import FastAPI, Response

from peacefs.protocol.errors import FileNotFound

_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>peacefs - REST</title>
<link rel="stylesheet" href="/v1/docs/swagger-ui.css">
<link rel="icon" href="data:,">
</head>
<body>
<div id="swagger-ui"></div>
<script src="/v1/docs/swagger-ui-bundle.js"></script>
<script src="/v1/docs/start.js"></script>
</body>
</html>
"""
_START = """\
SwaggerUIBundle({
  url: "/v1/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  validatorUrl: null,
  requestInterceptor: function (request) {
    request.headers["X-XSRF-HEADER"] = "peacefs";
    return request;
  },
});
"""
#: Swagger UI sets inline styles, and has data URLs of images in its style sheet.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_HEADERS = {"content-security-policy": POLICY}
_TYPES = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css"}


def add_docs_page(app: FastAPI) -> None:
    packaged = files("fastapi_offline") / "static"

    @cache
    def content(name: str) -> bytes:
        """Return a file's content, cached so that all responses share it in memory."""
        return (packaged / name).read_bytes()

    @app.get("/v1/docs", include_in_schema=False)
    async def page() -> Response:
        return Response(_PAGE, media_type="text/html; charset=utf-8", headers=_HEADERS)

    @app.get("/v1/docs/start.js", include_in_schema=False)
    async def start() -> Response:
        return Response(_START, media_type="text/javascript", headers=_HEADERS)

    @app.get("/v1/docs/{name}", include_in_schema=False)
    def part(name: str) -> Response:
        if name not in _TYPES:
            raise FileNotFound(f"no file of this name belongs to the page: {name[:40]!r}")
        return Response(content(name), media_type=_TYPES[name], headers=_HEADERS)
