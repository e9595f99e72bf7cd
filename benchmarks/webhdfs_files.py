"""Plain WebHDFS: requests over kept connections, one set per thread, with redirects followed by hand."""

from __future__ import annotations

import http.client
import threading
import urllib.request
from urllib.parse import urlsplit

_USER = "user.name=bench"


class WebhdfsFiles:
    """The files below `root` of the coordinator at `address` (http://host:port), each with content `data`."""

    def __init__(self, address: str, root: str, data: bytes) -> None:
        self._base = f"{address}/webhdfs/v1"
        self._root = root
        self._data = data
        self._own = threading.local()

    def mkdirs(self, path: str) -> None:
        self._ask("PUT", path, "op=MKDIRS")

    def write(self, path: str) -> None:
        self._ask("PUT", path, "op=CREATE&overwrite=true&replication=3", self._data)

    def rename(self, source: str, target: str) -> None:
        destination = urllib.request.pathname2url(self._root + target)
        assert self._ask("PUT", source, f"op=RENAME&destination={destination}") == b'{"boolean":true}'

    def read(self, path: str) -> int:
        return len(self._ask("GET", path, "op=OPEN"))

    def delete(self, path: str) -> None:
        assert self._ask("DELETE", path, "op=DELETE") == b'{"boolean":true}'

    def _ask(self, method: str, path: str, query: str, data: bytes | None = None) -> bytes:
        url = f"{self._base}{urllib.request.pathname2url(self._root + path)}?{query}&{_USER}"
        answer, said = self._request(method, url, None)
        if answer.status == 307:
            answer, said = self._request(method, answer.headers["location"], data)
        assert answer.status in (200, 201), (answer.status, said)
        return said

    def _request(self, method: str, url: str, body: bytes | None) -> tuple[http.client.HTTPResponse, bytes]:
        parts = urlsplit(url)
        kept: dict[str, http.client.HTTPConnection] = self._own.__dict__
        if parts.netloc not in kept:
            kept[parts.netloc] = http.client.HTTPConnection(parts.netloc)
        kept[parts.netloc].request(method, f"{parts.path}?{parts.query}", body=body)
        answer = kept[parts.netloc].getresponse()
        return answer, answer.read()
