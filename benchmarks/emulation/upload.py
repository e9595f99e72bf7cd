"""Write a file as stock Hadoop clients do: WebHDFS in two steps, with a chunked body."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from urllib.parse import quote, urlencode, urlsplit

from .orders import UploadOrder

_TIMEOUT_S = 300.0


def upload(coordinator: str, order: UploadOrder, user: str, piece: bytes) -> None:
    """Upload a file; return when it was acknowledged. Raises RuntimeError for any other answer, OSError."""
    asked = {
        "op": "CREATE",
        "user.name": user,
        "overwrite": "true",
        "replication": order.replication,
        "blocksize": order.block_bytes,
    }
    address = f"{coordinator}/webhdfs/v1{quote(order.path)}?{urlencode(asked)}"
    there = _put(address, None, http.client.TEMPORARY_REDIRECT)
    _put(there, _pieces(piece, order.length), http.client.CREATED)


def _put(address: str, body: Iterator[bytes] | None, expected: int) -> str:
    """Return the URL to which the answer redirects."""
    parts = urlsplit(address)
    assert parts.hostname is not None
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=_TIMEOUT_S)
    try:
        connection.request("PUT", f"{parts.path}?{parts.query}", body)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != expected:
            raise RuntimeError(f"PUT {address}: {answer.status} {text.decode(errors='replace')}")
        return answer.headers.get("Location", "")
    finally:
        connection.close()


def _pieces(piece: bytes, length: int) -> Iterator[bytes]:
    for at in range(0, length, len(piece)):
        yield piece[: length - at]
