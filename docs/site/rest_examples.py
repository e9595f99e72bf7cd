"""An example for each route of REST, asked of a running coordinator: the reference shows its real answers.

`run` asks them in their order, each after the ones before it. A route without an example stands in WITHOUT.
"""

from __future__ import annotations

import getpass
import json
import shlex
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

_TIMEOUT_S = 180.0
_SHOWN_LINES = 40
#: The files that the examples are about, before the first of them.
_FILES = {
    "/reports/monday": b"a report\n" * 200,
    "/reports/tuesday": b"another report\n" * 200,
    "/checkpoints/logins/metadata": b'{"id":"6c2f0a4e-0f60-4b0c-9a4e-5a3f3d0d9f11"}',
    "/checkpoints/logins/offsets/0": b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n{"logOffset":0}',
    "/checkpoints/logins/commits/0": b'v1\n{"nextBatchWatermarkMs":0}',
}
#: The user who asks: the superuser of a cluster that this process has started.
USER = getpass.getuser()


@dataclass(frozen=True)
class Example:
    """A request. `{node}` and the like in it are what `learn` has taken from answers before."""

    route: str
    query: dict[str, str] = field(default_factory=dict)
    body: object = None
    #: Values for later requests, from the answer.
    learn: Callable[[Any], dict[str, str]] | None = None


@dataclass(frozen=True)
class Answered:
    """An example as it was asked, by curl, and its answer."""

    curl: str
    status: int
    text: str


_AS_USER = {"user": USER}
EXAMPLES = (
    Example("GET /v1/status", learn=lambda told: {"node": told["datanodes"][0]["node"]}),
    Example("GET /v1/topology"),
    Example("GET /v1/history"),
    Example("GET /v1/schedule"),
    Example("GET /v1/schedule/recurrences"),
    Example(
        "POST /v1/schedule/phases", body={"root": "/checkpoints/a", "period_s": 10.0, "bytes": 1000, "user": USER}
    ),
    Example("GET /v1/schedule/phases"),
    Example("PUT /v1/schedule/policy", _AS_USER, {"policy": "express"}),
    Example("POST /v1/plan", body={"policy": "paper", "requests": [{"chunks": 2, "replication": 1}]}),
    Example("GET /v1/fsck", {"path": "/reports", **_AS_USER}),
    Example(
        "GET /v1/files/chunks",
        {"path": "/reports/monday", **_AS_USER},
        learn=lambda told: {"chunk": told["chunks"][0]["chunk"]},
    ),
    Example("GET /v1/chunks/{chunk}", _AS_USER),
    Example("POST /v1/copies", body={"source": "/reports/monday", "target": "/reports/copy", **_AS_USER}),
    Example("POST /v1/exchanges", body={"pairs": [["/reports/monday", "/reports/copy"]], **_AS_USER}),
    Example("POST /v1/files/truncate", body={"path": "/reports/copy", "length": 9, **_AS_USER}),
    Example("POST /v1/files/recover-lease", body={"path": "/reports/copy", **_AS_USER}),
    Example("POST /v1/files/open", body={"path": "/reports/monday", **_AS_USER}),
    Example("POST /v1/snapshots/restore", body={"path": "/reports", "snapshot": "first", **_AS_USER}),
    Example(
        "POST /v1/checkpoints/runs",
        body={"path": "/checkpoints/logins", "host": "driver-1", "pid": 17, **_AS_USER},
        learn=lambda told: {"location": told["location"]},
    ),
    Example("GET /v1/checkpoints/runs", {"path": "/checkpoints/logins", **_AS_USER}),
    Example("POST /v1/checkpoints/runs/end", body={"location": "{location}", **_AS_USER}),
    Example("GET /v1/checkpoints", {"path": "/checkpoints", **_AS_USER}),
    Example("GET /v1/checkpoints/show", {"path": "/checkpoints/logins", **_AS_USER}),
    Example("GET /v1/checkpoints/batches", {"path": "/checkpoints/logins", **_AS_USER}),
    Example("GET /v1/checkpoints/verify", {"path": "/checkpoints/logins", **_AS_USER}),
    Example("GET /v1/checkpoints/reports", {"path": "/checkpoints/logins", **_AS_USER}),
    Example("GET /v1/checkpoints/ancestry", {"path": "/checkpoints", **_AS_USER}),
    Example("GET /v1/checkpoints/units", {"path": "/", **_AS_USER}),
    Example("POST /v1/queries", body={"name": "logins", "command": ["count"], **_AS_USER}),
    Example("GET /v1/queries"),
    Example("GET /v1/queries/{name}"),
    Example("POST /v1/queries/{name}/stop", _AS_USER),
    Example("DELETE /v1/queries/{name}", _AS_USER),
    Example("POST /v1/balancer", _AS_USER, {"run": "{run}"}),
    Example("GET /v1/balancer"),
    Example("POST /v1/balancer/{run}/renew", _AS_USER),
    Example("POST /v1/balancer/{run}/cancel", _AS_USER),
    Example("POST /v1/datanodes/{node}/maintenance", {"hours": "2", **_AS_USER}),
    Example("POST /v1/datanodes/{node}/recommission", _AS_USER),
    Example("POST /v1/datanodes/{node}/decommission", _AS_USER),
    Example("GET /v1/credentials", _AS_USER),
    Example("POST /v1/datanodes/{node}/revoke", _AS_USER),
    Example("POST /v1/datanodes/{node}/readmit", _AS_USER),
    Example("POST /v1/metadata/backup", _AS_USER),
)
_KNOWN = {"name": "logins", "run": "friday"}
_CLIENTS = "a step of our client's writes and reads, whose bodies are its messages (`protocol/messages`)"
WITHOUT = {
    **{
        f"POST /v1/files/{step}": _CLIENTS
        for step in (
            *("abandon", "allocate", "complete", "corrupt", "create", "extend"),
            *("flush", "keep", "layout", "renew", "schedule"),
        )
    },
    "POST /v1/files/concat": "needs files of whole chunks, 64 MiB each",
    "POST /v1/checkpoints/reports": "Spark's own report of a batch, which a listener sends",
    "GET /v1/queries/{name}/log": "needs an agent that runs the query",
    "POST /v1/coordinator/hand-over": "it ends the coordinator, and needs a standby",
    "POST /v1/datanodes/{node}/disks/balance": "needs a datanode with several disks",
    "POST /v1/datanodes/{node}/forget": "needs a datanode that is dead",
    "POST /v1/metadata/accept-loss": "needs a store that has lost commits",
    "POST /v1/metadata/release-floor": "needs a store that was restored",
    "POST /v1/topology/probes": "`peacefs topology calibrate` measures links with it",
    "POST /v1/topology/probes/forget": "`peacefs topology calibrate` measures links with it",
    "POST /v1/topology/reload": "needs a coordinator with `--topology`",
}


def prepare(address: str) -> None:
    """Put the files into a cluster, and a snapshot."""
    for path, data in _FILES.items():
        _webhdfs(address, path, "CREATE", data=data)
    _webhdfs(address, "/reports", "ALLOWSNAPSHOT")
    _webhdfs(address, "/reports", "CREATESNAPSHOT", snapshotname="first")


def run(address: str) -> dict[str, Answered]:
    """Ask all of them of the coordinator at `address`; raise AssertionError for one that is refused."""
    prepare(address)
    known = dict(_KNOWN)
    answers = {}
    for example in EXAMPLES:
        method, path = _filled(example.route, known).split(" ", 1)
        query = urllib.parse.urlencode(
            {key: _filled(value, known) for key, value in example.query.items()}, safe="/"
        )
        url = f"{address}{path}{'?' if query else ''}{query}"
        body = None if example.body is None else _filled(json.dumps(example.body), known)
        status, answer, kind = _asked(method, url, None if body is None else body.encode())
        assert status < 300, f"{method} {url} {body}: {status} {answer!r}"
        shown = answer.decode() if "ndjson" in kind else f"({len(answer)} bytes)"
        if kind.startswith("application/json") and answer:
            told = json.loads(answer)
            known.update(example.learn(told) if example.learn is not None else {})
            shown = json.dumps(told, indent=1)
        answers[example.route] = Answered(_curl(method, url, body), status, _shortened(shown if answer else ""))
    return answers


def _filled(text: str, known: dict[str, str]) -> str:
    for name, value in known.items():
        text = text.replace("{" + name + "}", value)
    return text


def _curl(method: str, url: str, body: str | None) -> str:
    words = ["curl", *([] if method == "GET" else ["-X", method])]
    if body is not None:
        words += ["-H", "content-type: application/json", "-d", body]
    return shlex.join([*words, url])


def _shortened(text: str) -> str:
    lines = text.splitlines()
    return "\n".join(lines if len(lines) <= _SHOWN_LINES else [*lines[:_SHOWN_LINES], "..."])


def _asked(method: str, url: str, body: bytes | None) -> tuple[int, bytes, str]:
    headers = {} if body is None else {"content-type": "application/json"}
    try:
        request = urllib.request.Request(url, body, headers, method=method)
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            return answer.status, answer.read(), answer.headers.get("content-type", "")
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read(), ""


def _webhdfs(address: str, path: str, operation: str, data: bytes | None = None, **more: str) -> None:
    """Ask by WebHDFS, with the body sent to where the coordinator says."""
    query = urllib.parse.urlencode({"op": operation, "user.name": USER, **more})
    url = f"{address}/webhdfs/v1{path}?{query}"
    if data is not None:
        with urllib.request.urlopen(
            urllib.request.Request(f"{url}&noredirect=true", method="PUT"), timeout=_TIMEOUT_S
        ) as told:
            url = json.loads(told.read())["Location"]
    status, answer, _kind = _asked("PUT", url, data)
    assert status < 300, f"{operation} {path}: {status} {answer!r}"
