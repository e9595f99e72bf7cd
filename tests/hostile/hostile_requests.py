"""HTTP requests that no real client sends: smuggling, bad bodies, wrong types on every route."""

from __future__ import annotations

import json
import random
from typing import Any
from urllib.parse import quote

from peacefs.coordinator.calls.webhdfs_requests import OPERATIONS

_METHODS = (
    "GET",
    "PUT",
    "POST",
    "DELETE",
    "HEAD",
    "OPTIONS",
    "PATCH",
    "TRACE",
    "CONNECT",
    "patch",
    "PRI",
    "p",
    "\0",
)
_HEADS = (
    b"GET / HTTP/1.1\r\nHost: HERE\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x",
    b"POST /v1/files/open HTTP/1.1\r\nHost: HERE\r\nContent-Length: 4\r\nContent-Length: 40\r\n\r\n{}{}",
    b"POST /v1/files/open HTTP/1.1\r\nHost: HERE\r\nContent-Length: -1\r\n\r\n",
    b"POST /v1/files/open HTTP/1.1\r\nHost: HERE\r\nContent-Length: 99999999999999999999999\r\n\r\n",
    b"POST /v1/files/open HTTP/1.1\r\nHost: HERE\r\nContent-Length: 0x10\r\n\r\n{}",
    b"POST /v1/files/open HTTP/1.1\r\nHost: HERE\r\nContent-Length : 2\r\n\r\n{}",
    b"POST /v1/files/open HTTP/1.1\r\nHost: HERE\r\nTransfer-Encoding: xchunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"POST /v1/files/open HTTP/1.1\r\nHost: HERE\r\nTransfer-Encoding: chunked, x\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"POST /v1/files/open HTTP/1.1\r\nHost: HERE\r\nTransfer-Encoding:\x0bchunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"POST /v1/files/open HTTP/1.1\r\nHost: HERE\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{}",
    b"POST /v1/files/open HTTP/1.1\r\nHost: HERE\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
    b"POST /v1/files/open HTTP/1.1\r\nHost: HERE\r\nTransfer-Encoding: chunked\r\n\r\n2;"
    + b"x" * 70_000
    + b"\r\n{}\r\n",
    b"POST /v1/files/open HTTP/1.1\r\nHost: HERE\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX: "
    + b"y" * 200_000,
    b"GET / HTTP/1.1\r\nHost: HERE\r\nHost: evil\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: HERE\r\n folded: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: HERE\r\nX: a\rb\r\n\r\n",
    b"GET / HTTP/1.1\nHost: HERE\n\n",
    b"GET / HTTP/1.0\r\n\r\n",
    b"GET / HTTP/9.9\r\nHost: HERE\r\n\r\n",
    b"GET http://evil.example/ HTTP/1.1\r\nHost: HERE\r\n\r\n",
    b"GET * HTTP/1.1\r\nHost: HERE\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: HERE\r\n\r\n",
    b"CONNECT evil.example:443 HTTP/1.1\r\nHost: HERE\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: HERE\r\nConnection: Upgrade, X\r\nUpgrade: h2c\r\nX: A\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: HERE\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
    b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: HERE\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: HERE\r\n" + b"a:b\r\n" * 5000 + b"\r\n",
    b"GET / HTTP/1.1\r\nHost: HERE\r\nX: " + b"x" * 200_000 + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: HERE\r\nExpect: 200-maybe\r\n\r\n",
    b"PUT / HTTP/1.1\r\nHost: HERE\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"p",
    b"\r\n" * 5000,
)
_VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1e400,
    2**63,
    2**70,
    "",
    "x",
    "/",
    "/a",
    "/../x",
    "\0",
    "\ud800",
    "x" * 10_000,
    [],
    [[]] * 50,
    {},
    {"a": {}},
    ["/"] * 50,
    "root",
    "eve",
    0.5,
)
_NAMES = [
    "path",
    "user",
    "source",
    "target",
    "sources",
    "pairs",
    "token",
    "chunks",
    "holder",
    "request_id",
    "name",
    "command",
    "checkpoint",
    "length",
    "permission",
    "replication",
    "block_bytes",
    "overwrite",
    "policy",
    "requests",
    "topology",
    "pipeline",
    "location",
    "host",
    "pid",
    "run",
    "threshold_percent",
    "chunk",
    "version",
    "node",
    "snapshot",
    "exclude",
]
_PARAMETERS = [
    "user.name",
    "permission",
    "replication",
    "blocksize",
    "overwrite",
    "destination",
    "renameoptions",
    "recursive",
    "offset",
    "length",
    "newlength",
    "modificationtime",
    "owner",
    "group",
    "snapshotname",
    "oldsnapshotname",
    "token",
    "layout",
    "first",
    "noredirect",
    "excludedatanodes",
    "fsaction",
    "namespacequota",
    "storagespacequota",
    "sources",
    "xattr.name",
    "startafter",
    "requestid",
    "doas",
    "delegation",
    "namenoderpcaddress",
    "createflag",
    "buffersize",
]
_ODD = (
    "",
    "-1",
    "0",
    "1",
    "abc",
    "%00",
    "%",
    "%zz",
    "%ff%fe",
    "9" * 30,
    "true",
    "/",
    "/a",
    "%2e%2e",
    "777",
    "99999",
    "+",
    "%0d%0aX:%20y",
    "a" * 3000,
    "%E6%97%A5",
    "AAAA",
    "k8QAkA",
    "null",
    "r-x",
    "root",
    "eve",
    "host:1,host:x",
)


def request(rng: random.Random, here: str, described: dict[str, Any]) -> bytes:
    """Return a request of any of these kinds. `described` is the OpenAPI description of the coordinator's REST
    API.
    """
    match rng.randrange(10):
        case 0:
            return rng.choice(_HEADS).replace(b"HERE", here.encode())
        case 1:
            data = bytearray(_webhdfs(rng, here))
            for _ in range(rng.randint(1, 5)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            return bytes(data)
        case 2 | 3 | 4 | 5:
            return _webhdfs(rng, here)
        case _:
            return _rest(rng, here, described)


def _webhdfs(rng: random.Random, here: str) -> bytes:
    method, names = rng.choice(list(OPERATIONS.items()))
    if rng.random() < 0.1:
        method = rng.choice(_METHODS)
    parameters = [f"op={rng.choice(list(names))}"]
    parameters += [f"{rng.choice(_PARAMETERS)}={rng.choice(_ODD)}" for _ in range(rng.randrange(5))]
    rng.shuffle(parameters)
    path = rng.choice(("/", "/a", "/a/b", "//", "/%2e%2e/x", "/%00", "/%", "/" + "d/" * 1500, "/.snapshot/x", ""))
    body = rng.choice((b"", b"", b"x" * 100, b"{" * 5000))
    return _whole(method, f"/webhdfs/v1{path}?{'&'.join(parameters)}", here, body, rng)


def _rest(rng: random.Random, here: str, described: dict[str, Any]) -> bytes:
    path, operations = rng.choice(list(described["paths"].items()))
    method = rng.choice(list(operations)).upper()
    while "{" in path:
        before, _, rest = path.partition("{")
        path = before + rng.choice(("x", "%00", "%2f", "-1", "a" * 500, "..")) + rest.partition("}")[2]
    asked = "&".join(f"{rng.choice(('user', 'path', 'hours', 'after'))}={rng.choice(_ODD)}" for _ in range(2))
    return _whole(method, f"{path}?{asked}", here, _json(rng, operations, method), rng)


def _json(rng: random.Random, operations: dict[str, Any], method: str) -> bytes:
    depth = rng.choice((5, 1000, 100_000))
    match rng.randrange(8):
        case 0:
            return b"[" * depth
        case 1:
            return b'{"path":' * depth
        case 2:
            return rng.randbytes(300)
        case 3:
            return json.dumps(rng.choice(_VALUES)).encode()
        case 4:
            return b'{"path": "\xff\xfe", "user": "x"}'
        case _:
            content = operations[method.lower()].get("requestBody", {}).get("content", {})
            schema = content.get("application/json", {}).get("schema", {})
            names = [*schema.get("properties", ()), *rng.sample(_NAMES, 6)]
            fields = {name: rng.choice(_VALUES) for name in names}
            fields.update(rng.choice(({}, {"path": "/a", "user": "eve"}, {"user": "eve", "token": "AAAA"})))
            return json.dumps(fields).encode()


def _whole(method: str, target: str, here: str, body: bytes, rng: random.Random) -> bytes:
    head = [f"{method} {target} HTTP/1.1", f"Host: {here}", "Content-Type: application/json"]
    if rng.random() < 0.2:
        head.append(
            f"{rng.choice(('Origin', 'X-Forwarded-For', 'Authorization', 'Range'))}: {quote(rng.choice(_ODD))}"
        )
    if rng.random() < 0.2:
        chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
        return "\r\n".join((*head, "Transfer-Encoding: chunked", "", "")).encode("latin-1") + chunks
    length = len(body) + rng.choice((0, 0, 0, 0, 1, -1)) if body else 0
    return "\r\n".join((*head, f"Content-Length: {length}", "", "")).encode("latin-1") + body
